"""One load of texts over HTTP under several candidates of a served cascade, so that they can be compared.

Every candidate gets the same texts at the same times from one service, one load after the other; deadlines are short enough
to matter under load.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.load_generator import Form, Reply, Told, capacity, replay
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.report import Report, summarise
from pliant.workload import poisson

HEADINGS = ("candidate", "in time", "acc.", "good/s", "p50 ms", "p99 ms", "level", "cut")


@dataclass(frozen=True, slots=True)
class TextExample:
    text: tuple[str, str | None]
    label: str


@dataclass(frozen=True, slots=True)
class LoadConfig:
    seconds: float = 10.0  # of one turn
    turns: int = 1  # every candidate gets so many loads, the candidates one after the other in each
    share: float = 0.9  # of what the large model alone can bear
    deadline: float = 0.25
    probe: float = 2.0  # seconds of saturation to find what that is
    clients: int = 64
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the endpoint made of the load. `capacity`: answers a second of the large model alone."""

    capacity: float
    rate: float
    replies: Mapping[str, Sequence[Reply]]  # by candidate
    levels: tuple[str, ...]

    def report(self, candidate: str) -> Report:
        return summarise(reply.observation for reply in self.replies[candidate])

    def rows(self) -> list[tuple[str, ...]]:
        return [self._row(name, self.report(name)) for name in self.replies]

    def _row(self, name: str, found: Report) -> tuple[str, ...]:
        answered = max(1, sum(found.settings.values()))
        by_level: dict[str, int] = {}
        for setting, count in found.settings.items():
            level = self.levels[setting // 2]
            by_level[level] = by_level.get(level, 0) + count
        cut = sum(count for setting, count in found.settings.items() if setting % 2)
        return (
            name,
            f"{found.attainment:.1%}",
            f"{found.accuracy:.3f}",
            f"{found.goodput:.0f}",
            f"{1e3 * found.p50:.0f}",
            f"{1e3 * found.p99:.0f}",
            " ".join(f"{level}:{count / answered:.0%}" for level, count in by_level.items()),
            f"{cut / answered:.1%}",
        )

    def ratio(self, candidate: str, other: str) -> float:
        """Correct answers in time of the one over those of the other."""
        return self.report(candidate).utility / max(self.report(other).utility, 1.0)

    def plain(self) -> dict[str, Any]:
        from dataclasses import asdict

        reports = {name: asdict(self.report(name)) for name in self.replies}
        return {"capacity": self.capacity, "rate": self.rate, "reports": reports}


def form(candidate: str, levels: Sequence[str]) -> Form:
    """Settings are twice the level's number, and one more where the answer was cut short."""

    def body(request: Request, example: TextExample) -> bytes:
        first, second = example.text
        fields = {"task": request.task, "text": first, "candidate": candidate, "utility": request.utility}
        fields |= {"deadline": request.deadline - request.arrival} | ({} if second is None else {"text_pair": second})
        return json.dumps(fields).encode()

    def read(answer: Any, example: TextExample) -> Told:
        (one,) = answer["answers"]
        setting = 2 * levels.index(one["level"]) + bool(one["cut_short"])
        seconds = one.get("queue_seconds", math.nan) + one.get("run_seconds", math.nan)
        return Told(one["label"] == example.label, setting, None, seconds)

    return Form(body, read)


def compare(
    address: str,
    task: str,
    levels: Sequence[str],
    candidates: Sequence[str],
    pool: Sequence[TextExample],
    config: LoadConfig,
    progress: Progress = silent,
) -> Loaded:
    """The capacity of the last of `candidates` sets the rate of the loads, which all of them get.

    They take turns on one endpoint, every other time in the opposite order, so that what else the machine does falls on
    all of them alike.
    """
    form_of = {name: form(name, levels) for name in candidates}
    some, parts = {task: pool}, 1 + config.turns * len(candidates)
    borne = asyncio.run(capacity(address, some, config.probe, config.clients, form_of[candidates[-1]]))
    rate = config.share * borne
    replies: dict[str, list[Reply]] = {name: [] for name in candidates}
    for turn in range(config.turns):
        requests = _load(task, rate, config, config.seed + turn)
        order = candidates if turn % 2 == 0 else candidates[::-1]
        for place, name in enumerate(order, 1 + turn * len(candidates)):
            told = share(progress, 100 * place // parts, 100 * (place + 1) // parts)
            found = asyncio.run(replay(address, requests, some, config.seed + turn, told, form_of[name]))
            replies[name] += [_later(reply, turn * config.seconds) for reply in found]
    return Loaded(borne, rate, replies, tuple(levels))


def _load(task: str, rate: float, config: LoadConfig, seed: int) -> list[Request]:
    arrivals = poisson(rate, config.seconds, np.random.default_rng(seed))
    return [Request(i, float(at), float(at) + config.deadline, task) for i, at in enumerate(arrivals)]


def _later(reply: Reply, seconds: float) -> Reply:
    """The reply as of a load that began so much later."""
    seen = reply.observation
    request = replace(seen.request, arrival=seen.request.arrival + seconds, deadline=seen.request.deadline + seconds)
    answered = None if seen.answered is None else seen.answered + seconds
    return replace(reply, observation=replace(seen, request=request, answered=answered))
