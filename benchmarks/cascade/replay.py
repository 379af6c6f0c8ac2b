"""One load of texts over HTTP under several candidates of a served cascade, so that they can be compared.

Texts are those of the embedded corpus that the champion was neither trained nor planned with.

Every candidate gets the same texts at the same times from one service, one load after the other; deadlines are short enough
to matter under load.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.load_generator import Form, Parsed, Reply, capacity, later, replay, turns
from pliant.cascade.artifact import Cascade
from pliant.errors import RegistryError
from pliant.flows import settings
from pliant.flows.champions import champion_artifacts
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import Observation, Report, summarise
from pliant.training import docstrings
from pliant.training.text_data import TextData
from pliant.workload import poisson

MOST_TEXTS = 2000
HEADINGS = ("candidate", "in time", "acc.", "good/s", "p50 ms", "p99 ms", "level", "cut")
KEPT = ", not cut short"


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
    probed: int = 256  # texts of the probe
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the endpoint made of the load. `capacity`: answers a second of the large model alone, and `rate`: the offered
    ones, in the mean of the turns."""

    capacity: float
    rate: float
    replies: Mapping[str, Sequence[Reply]]  # by candidate
    levels: tuple[str, ...]

    def seen(self) -> dict[str, list[Observation]]:
        """Return how all requests fared, by candidate."""
        return {name: [reply.observation for reply in replies] for name, replies in self.replies.items()}

    def report(self, candidate: str) -> Report:
        return summarise(self.seen()[candidate])

    def cut_short(self, candidate: str, whether: bool = True) -> Report:
        """Report on the answers that a deadline cut short, or on those that it did not, which the promise is about."""
        answers = [answer for answer in self.seen()[candidate] if answer.setting is not None]
        return summarise(answer for answer in answers if (answer.setting or 0) % 2 == whether)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells under HEADINGS: one line a candidate, and one of its answers that were not cut short, if any
        were. Its share in time, too, is of all requests."""
        lines = []
        for name in self.replies:
            report = self.report(name)
            lines.append(self._row(name, report, report.requests))
            if self.cut_short(name).requests:
                lines.append(self._row(f"{name}{KEPT}", self.cut_short(name, False), report.requests))
        return lines

    def _row(self, name: str, report: Report, requests: int) -> tuple[str, ...]:
        answered = max(1, sum(report.settings.values()))
        by_level: Counter[str] = Counter()
        for setting, count in report.settings.items():
            by_level[self.levels[setting // 2]] += count
        cut = sum(count for setting, count in report.settings.items() if setting % 2)
        in_time = report.attainment * report.requests / max(requests, 1) if report.requests else 0.0
        figures = f"{in_time:.1%}", f"{report.accuracy:.3f}", f"{report.goodput:.0f}"
        milliseconds = (f"{1e3 * seconds:.0f}" for seconds in (report.p50, report.p99))
        levels = " ".join(f"{level}:{count / answered:.0%}" for level, count in by_level.items())
        return name, *figures, *milliseconds, levels, f"{cut / answered:.1%}"

    def ratio(self, candidate: str, other: str) -> float:
        """Return the correct answers in time of the one over those of the other."""
        return self.report(candidate).utility / max(self.report(other).utility, 1.0)

    def plain(self) -> dict[str, Any]:
        reports = {name: asdict(self.report(name)) for name in self.replies}
        return {"capacity": self.capacity, "rate": self.rate, "reports": reports}


def form(candidate: str, levels: Sequence[str]) -> Form:
    """Return a candidate's form. Settings are twice the level's number, and one more where the answer was cut short."""

    def body(request: Request, example: TextExample) -> bytes:
        first, second = example.text
        fields = {"task": request.task, "text": first, "candidate": candidate, "utility": request.utility}
        fields |= {"deadline": request.deadline - request.arrival} | ({} if second is None else {"text_pair": second})
        return json.dumps(fields).encode()

    def read(answer: Any, example: TextExample) -> Parsed:
        (result,) = answer["answers"]
        setting = 2 * levels.index(result["level"]) + bool(result["cut_short"])
        seconds = result.get("queue_seconds", math.nan) + result.get("run_seconds", math.nan)
        return Parsed(result["label"] == example.label, setting, None, seconds)

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
    """Send every candidate the same loads, in turns on one endpoint.

    The rate of a turn follows from the capacity of the last candidate just before, as a machine that does something else may
    bear half as much.
    """
    form_of = {name: form(name, levels) for name in candidates}
    probed = form_of[candidates[-1]], 1.0, config.probed
    borne: list[float] = []
    replies: dict[str, list[Reply]] = {name: [] for name in candidates}
    for turn, name, part in turns(config.turns, candidates, progress):
        if turn == len(borne):
            borne.append(asyncio.run(capacity(address, {task: pool}, config.probe, config.clients, *probed)))
        seed = config.seed + turn
        arrivals = poisson(config.share * borne[turn], config.seconds, np.random.default_rng(seed)).tolist()
        requests = [Request(i, at, at + config.deadline, task) for i, at in enumerate(arrivals)]
        answers = asyncio.run(replay(address, requests, {task: pool}, seed, part, form_of[name]))
        replies[name] += [later(reply, turn * config.seconds) for reply in answers]
    bears = sum(borne) / len(borne)
    return Loaded(bears, config.share * bears, replies, tuple(levels))


def live_cascade() -> tuple[Cascade, TextData]:
    """Return the champion of the first embedded task, and its data. Raises `RegistryError` without one."""
    champions = champion_artifacts(settings.read(), Cascade)
    for cascade in champions.values():
        for task in docstrings.TASKS:
            data = docstrings.load(task, cascade.task)
            if data.fingerprint == cascade.data and data.classes:
                return cascade, data
    has = f"has no champion but {', '.join(champions)}" if champions else "holds no champion of the cascade system"
    raise RegistryError(f"the registry {has}: run `pliant train cascade` first")


def largest(cascade: Cascade) -> str:
    """Return the name of the candidate that is the largest level alone."""
    return f"only {cascade.levels[-1].name}"


def measure(candidates: Sequence[str], config: LoadConfig, progress: Progress = silent) -> tuple[Cascade, Loaded]:
    """Serve one load of test texts under each of these candidates, and by the largest model alone, whose capacity sets the
    rate."""
    cascade, data = live_cascade()
    known = {candidate.name for candidate in cascade.candidates}
    names = [*(name for name in candidates if name in known), largest(cascade)]
    levels, index = [level.name for level in cascade.levels], data.split.test[:MOST_TEXTS]
    labels = [data.classes[int(number)] for number in data.labels[index]]
    pool = [TextExample(text, label) for text, label in zip(data.texts(index), labels, strict=True)]
    with serving("cascade") as url:
        return cascade, compare(url, cascade.task, levels, names, pool, config, progress)
