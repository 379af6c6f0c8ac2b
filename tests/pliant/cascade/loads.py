"""Loads and worlds for tests of the cascade's scheduler: two small tasks, bursty requests, devices that fail or drift.

`news` has two levels and may also be asked of the large one alone (candidate 1), `pairs` has three. What every level would
answer is drawn once: two texts in five go on from each level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pliant.cascade.artifact import Candidate, Cascade, Gate, LevelProfile, Pruning
from pliant.cascade.evaluate import Step
from pliant.cascade.knowledge import Knowledge, Model, Path, placement
from pliant.cascade.scheduler import CascadeScheduler, Options
from pliant.cascade.simulated import SimulatedCascade, Walks
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, Journal, JournalEntry, Launch, Request, Result
from pliant.simulate import simulate
from pliant.workload import Segment, piecewise

LENGTHS, BATCHES = (16, 64, 256), (1, 4, 16)
TEXTS = 200
URGENT, PATIENT = (0.15, 1.0), (0.6, 0.4)  # seconds to the deadline, utility


def table(scale: float) -> LatencyTable:
    """A launch takes `scale` milliseconds, and as much again every 64 tokens."""
    rows = tuple(tuple(0.001 * scale * (1 + length * batch / 64) for batch in BATCHES) for length in LENGTHS)
    return LatencyTable(LENGTHS, BATCHES, rows)


def known(workers: int = 1, own: bool = False) -> Knowledge:
    """Models 0 and 1 are of `news`, 2 to 4 of `pairs`."""
    where = [*placement(2, workers, own), *placement(3, workers, own)]
    models = tuple(Model(table(scale), at) for scale, at in zip((0.3, 1.0, 0.2, 0.5, 1.5), where, strict=True))
    tasks = {"news": (Path((0, 1), 0.8), Path((1,), 0.9)), "pairs": (Path((2, 3, 4), 0.7),)}
    return Knowledge(models, tasks)


def step(rng: np.random.Generator, right: float, length_R: np.ndarray, last: bool) -> Step:
    gain_R = np.where(rng.random(TEXTS) < 0.4, rng.uniform(0.02, 0.5, TEXTS), np.nan)
    none_R = np.zeros(TEXTS)
    correct_R = rng.random(TEXTS) < right
    return Step(none_R[:, None], correct_R, np.full(TEXTS, np.nan) if last else gain_R, length_R, none_R, none_R)


def walked(seed: int = 0) -> dict[str, Walks]:
    """Later levels are better, and read fewer tokens."""
    rng = np.random.default_rng(seed)
    length_R = rng.integers(5, 250, TEXTS)
    small = step(rng, 0.8, length_R, last=False)
    large = step(rng, 0.95, np.maximum(length_R * 4 // 5, 1), last=True)
    middle = step(rng, 0.85, length_R, last=False)
    return {"news": ((small, large), (large,)), "pairs": ((small, middle, large),)}


WALKED = walked()


def ask(id: int, at: float = 0.0, within: float = 1.0, task: str = "news", utility: float = 1.0, **more) -> Request:
    return Request(id, at, at + within, task, utility, **{"length": 20, **more})


@dataclass(frozen=True)
class Load:
    requests: list[Request]
    rows: list[int]


def bursty(seed: int, seconds: float = 1.0, rates=(60, 500, 100, 900), candidates: int = 2) -> Load:
    rng = np.random.default_rng(seed)
    times = piecewise([Segment(rate, seconds) for rate in rates], rng)
    rows = rng.integers(TEXTS, size=len(times)).tolist()
    return Load([_request(i, at, row, rng, candidates) for i, (at, row) in enumerate(zip(times, rows))], rows)  # noqa: B905


def _request(id: int, at: float, row: int, rng: np.random.Generator, candidates: int) -> Request:
    task = "news" if rng.random() < 0.6 else "pairs"
    setting = int(rng.integers(candidates)) if task == "news" else 0
    within, utility = URGENT if rng.random() < 0.5 else PATIENT
    length = int(WALKED[task][setting][0].length_R[row])
    return Request(id, float(at), float(at) + within, task, utility, length, setting)


@dataclass
class World:
    """Durations as in the tables times `slow`; launches and restarts fail at the given rates."""

    seed: int = 0
    slow: float = 1.0
    failing: float = 0.0
    failing_restarts: float = 0.0
    jitter: float = 0.0

    def over(self, load: Load, knowledge: Knowledge) -> Callable[[Launch], tuple[float, Finished | Failed]]:
        rng = np.random.default_rng(self.seed)
        device = SimulatedCascade(knowledge, WALKED, load.requests, load.rows, rng, self.jitter)

        def execute(launch: Launch) -> tuple[float, Finished | Failed]:
            seconds, end = device(launch)
            seconds *= self.slow if launch.kind == "run" else 0.02
            if rng.random() < (self.failing if launch.kind == "run" else self.failing_restarts):
                return seconds / 2, Failed(launch.id, "planted")
            return seconds, Finished(launch.id, seconds, end.results)

        return execute


@dataclass
class Books:
    """Looks over the shoulder of a simulation: `check()` after every event, one fate per request, one launch a worker."""

    scheduler: CascadeScheduler
    knowledge: Knowledge
    arrived: dict[int, Request] = field(default_factory=dict)
    fates: dict[int, Answer | Drop] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    busy: dict[int, int] = field(default_factory=dict)
    launches: dict[int, Launch] = field(default_factory=dict)
    ran: dict[int, list[Launch]] = field(default_factory=dict)  # of every request, those that ended well

    def __call__(self, entry: JournalEntry) -> None:
        self.scheduler.check()
        match entry.event:
            case Arrived(request):
                self.arrived[request.id], self.ran[request.id] = request, []
            case Finished(launch) | Failed(launch):
                ended = self.launches[launch]
                del self.busy[ended.worker]
                if isinstance(entry.event, Finished):
                    for request in ended.requests:
                        self.ran[request].append(ended)
        for action in entry.actions:
            match action:
                case Launch():
                    self._note_launch(action)
                case _:
                    self._note_fate(action, entry)

    def _note_fate(self, action: Answer | Drop, entry: JournalEntry) -> None:
        assert action.request not in self.fates, "one fate per request"
        self.fates[action.request] = action
        ran = self.ran[action.request]
        if isinstance(action, Drop):
            assert not ran, "what has an answer is not dropped"
            return
        assert ran[-1].id == action.launch, "the answer is that of the last level that ran"
        if entry.now > self.arrived[action.request].deadline:
            self.late.append(action.request)

    def _note_launch(self, launch: Launch) -> None:
        assert launch.id not in self.launches, "a launch id is used once"
        assert launch.worker not in self.busy, "a worker has one launch at a time"
        assert not set(launch.requests) & set(self.fates), "what was answered or dropped does not run"
        assert bool(launch.requests) == (launch.kind == "run"), "runs have requests, nothing else has"
        if launch.kind == "run":
            assert launch.worker in self.knowledge.models[launch.setting].workers, "the worker has the model"
        for id in launch.requests:
            request = self.arrived[id]
            path = self.knowledge.tasks[request.task][request.setting].models
            assert path[len(self.ran[id])] == launch.setting, "levels run in the order of the path"
        self.busy[launch.worker], self.launches[launch.id] = launch.id, launch


def scheduler(knowledge: Knowledge, workers: int = 1, **options) -> CascadeScheduler:
    """Without a margin unless one is given."""
    return CascadeScheduler(knowledge, workers, Options(**{"margin": 0.0, **options}))


def run(
    load: Load,
    world: World | None = None,
    workers: int = 1,
    own: bool = False,
    fresh: CascadeScheduler | None = None,
    **options,
) -> tuple[Journal, Books]:
    """A whole simulation with its books; every request has one fate at the end."""
    knowledge = known(workers, own)
    fresh = fresh or scheduler(knowledge, workers, **options)
    books = Books(fresh, knowledge)
    journal = simulate(fresh, load.requests, (world or World()).over(load, knowledge), books)
    assert set(books.fates) == {request.id for request in load.requests}
    assert fresh.waiting == 0
    assert not books.busy
    return journal, books


@dataclass(frozen=True)
class Fared:
    """`attained`: share answered in time; `utility`: share of what was offered that was earned."""

    attained: float
    utility: float


def fared(journal: Journal) -> Fared:
    """An answer may be of an earlier launch than the one that just ended."""
    requests = {e.event.request.id: e.event.request for e in journal if isinstance(e.event, Arrived)}
    right: dict[tuple[int, int], bool] = {}
    attained, earned = 0, 0.0
    for entry in journal:
        if isinstance(entry.event, Finished):
            right |= {(entry.event.launch, result.request): bool(result.correct) for result in entry.event.results}
        for action in entry.actions:
            if isinstance(action, Answer) and entry.now <= requests[action.request].deadline:
                attained += 1
                earned += requests[action.request].utility * right[action.launch, action.request]
    return Fared(attained / len(requests), earned / sum(request.utility for request in requests.values()))


def profile(name: str, accuracy: float, scale: float, importance: float | None = None) -> LevelProfile:
    measured = None if importance is None else table(importance)
    return LevelProfile(name, f"digest of {name}", 1.0, (), accuracy, 0.0, 0.0, table(scale), measured)


def candidate(levels: tuple[int, ...], pruning: Pruning | None = None, kind: str = "always") -> Candidate:
    gates = tuple(Gate(kind, pruning=pruning or Pruning()) for _ in levels[1:])
    return Candidate("made up", levels, gates, 0.0, 0.0, 0.0, (1.0,) * len(levels))


def cascade(task: str, levels: tuple[LevelProfile, ...], *candidates: Candidate) -> Cascade:
    return Cascade(task, ("a", "b"), False, 0.0, "cpu", levels, candidates, 0.9, 0.95, {}, "made up")


# One request by hand

LEVEL = Knowledge((Model(table(1.0), (0,)), Model(table(4.0), (0,))), {"news": (Path((0, 1), 0.8),)})
FIRST, SECOND = table(1.0).between(20, 1), table(4.0).between(20, 1)  # seconds of a text of 20 tokens by itself


def done(launch: Launch, at: float, gain: float | None = None, seconds: float | None = None) -> Finished:
    return Finished(
        launch.id, at if seconds is None else seconds, tuple(Result(i, None, gain) for i in launch.requests)
    )


def started(fresh, request, now: float = 0.0) -> Launch:
    (launch,) = fresh.handle(Arrived(request), now)
    return launch
