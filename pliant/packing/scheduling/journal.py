"""The journal of a run as JSON lines, one decision a line, so that what happened live can be decided again and
examined.

Knows the values of request.py and nothing of files. Floats keep every bit (`repr`), infinity included. Empty fields are
left out, so that an iteration in which nothing happens takes a few bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, Protocol

from pliant.errors import InputError
from pliant.packing.scheduling.request import Chunk, Correction, Prompt, StepInput, StepPlan

Entry = tuple[float, StepInput, StepPlan]
"""The time in seconds on the driver's clock, what the scheduler was given, and what it decided."""
Journal = list[Entry]

PROMPT = {field.name: field.default for field in fields(Prompt)}
INPUT_KEYS = tuple(field.name for field in fields(StepInput))
_OTHER_KEYS = {"prefill_chunks": "chunks", "stalled": "idle"}
PLAN_KEYS = {field.name: _OTHER_KEYS.get(field.name, field.name) for field in fields(StepPlan)}
"""The fields of a `StepPlan`, each with its key in a line."""


class StepScheduler(Protocol):
    """A scheduler that decides one iteration at a time, as `PackingScheduler` does."""

    def handle(self, step_input: StepInput, now: float) -> StepPlan: ...


def encode(now: float, step_input: StepInput, plan: StepPlan) -> str:
    """Return one line, without its line end."""
    entry = {key: getattr(step_input, key) for key in INPUT_KEYS}
    entry |= {key: getattr(plan, name) for name, key in PLAN_KEYS.items()}
    prompts = [{name: getattr(prompt, name) for name in PROMPT} for prompt in step_input.arrived]
    entry["arrived"] = [{name: value for name, value in each.items() if value != PROMPT[name]} for each in prompts]
    entry["corrected"] = [astuple(correction) for correction in step_input.corrected]
    entry["chunks"] = [
        (chunk.id, chunk.tokens, *((chunk.taken, chunk.kept) if chunk.taken or chunk.kept else ()))
        for chunk in plan.prefill_chunks
    ]
    return json.dumps({"now": now} | {key: value for key, value in entry.items() if value})


def decode(line: str) -> Entry:
    """Return the entry of one line. Raises `InputError` for a line that holds none."""
    try:
        entry = json.loads(line)
        now = entry.pop("now")
        unknown = set(entry) - {*INPUT_KEYS, *PLAN_KEYS.values()}
        if unknown or not isinstance(now, float | int):
            raise ValueError(f"unknown: {', '.join(sorted(unknown))}" if unknown else f"now is {now!r}")
        arrived = tuple(_prompt(values) for values in entry.get("arrived", ()))
        corrected = tuple(Correction(*row) for row in entry.get("corrected", ()))
        ended = tuple(entry.get("finished", ())), tuple(entry.get("cancelled", ()))
        rows = {name: tuple(entry.get(key, ())) for name, key in PLAN_KEYS.items()}
        rows["dropped"] = tuple((id, reason) for id, reason in rows["dropped"])
        rows["prefill_chunks"] = tuple(map(_chunk, rows["prefill_chunks"]))
        return now, StepInput(arrived, *ended, corrected), StepPlan(**rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError("journal line", repr(line[:80]), f"one entry as written by encode ({error})") from None


def replay(scheduler: StepScheduler, journal: Iterable[Entry]) -> Journal:
    """Return what a fresh scheduler decides for the same inputs at the same times: the same journal, if it is pure."""
    return [(now, step_input, scheduler.handle(step_input, now)) for now, step_input, _ in journal]


def _chunk(row: Sequence[Any]) -> Chunk:
    id, tokens, *common = row
    taken, kept = common or ((), ())
    return Chunk(id, tokens, tuple(taken), tuple((place, number) for place, number in kept))


def _prompt(values: Mapping[str, Any]) -> Prompt:
    lists = {name: tuple(values[name]) for name in ("forecast", "beginnings") if name in values}
    return Prompt(**{**values, **lists})
