"""A run of packing as JSON lines, one decision a line, so that what happened live can be decided again and looked at.

Knows the values of request.py and nothing of files. Floats keep every bit (`repr`), infinity included; what is empty is
left out, so that an iteration in which nothing happens takes a few bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Protocol

from pliant.errors import InputError
from pliant.packing.scheduling.request import Chunk, Prompt, StepInput, StepPlan

Entry = tuple[float, StepInput, StepPlan]
Journal = list[Entry]

PROMPT = {field.name: field.default for field in fields(Prompt)}
ROUND = tuple(field.name for field in fields(StepInput))
DECISION = tuple(field.name for field in fields(StepPlan))


class Decides(Protocol):
    def handle(self, round: StepInput, now: float) -> StepPlan: ...


def encode(now: float, round: StepInput, decision: StepPlan) -> str:
    """One line without its line end."""
    told = {name: getattr(round, name) for name in ROUND} | {name: getattr(decision, name) for name in DECISION}
    told["arrived"] = [_prompt_fields(prompt) for prompt in round.arrived]
    told["chunks"] = [(chunk.id, chunk.tokens) for chunk in decision.chunks]
    return json.dumps({"now": now} | {name: value for name, value in told.items() if value})


def decode(line: str) -> Entry:
    """The entry of one line. Raises `InputError` for a line that is none."""
    try:
        told = json.loads(line)
        now = told.pop("now")
        unknown = set(told) - {*ROUND, *DECISION}
        if unknown or not isinstance(now, float | int):
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}" if unknown else f"now is {now!r}")
        return now, _round(told), _decision(told)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("journal line", repr(line[:80]), f"one entry as written by encode ({error})") from None


def replay(packer: Decides, journal: Iterable[Entry]) -> Journal:
    """What a fresh scheduler decides in the same rounds at the same times: the journal again, if it is pure."""
    return [(now, round, packer.handle(round, now)) for now, round, _ in journal]


def _prompt_fields(prompt: Prompt) -> dict[str, Any]:
    given = {name: getattr(prompt, name) for name in PROMPT}
    return {name: value for name, value in given.items() if value != PROMPT[name]}


def _round(told: Mapping[str, Any]) -> StepInput:
    arrived = tuple(Prompt(**{**one, "forecast": tuple(one["forecast"])}) for one in told.get("arrived", ()))
    return StepInput(arrived, tuple(told.get("finished", ())), tuple(told.get("cancelled", ())))


def _decision(told: Mapping[str, Any]) -> StepPlan:
    rows = {name: tuple(told.get(name, ())) for name in DECISION}
    rows["dropped"] = tuple((id, reason) for id, reason in rows["dropped"])
    rows["chunks"] = tuple(Chunk(id, tokens) for id, tokens in rows["chunks"])
    return StepPlan(**rows)
