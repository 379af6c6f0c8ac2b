"""Loads and worlds for tests of the bins scheduler: bursts of one or two streams, devices that fail, scatter or drift.

`mail` has four lengths, `chat` two; a load takes 20 ms and a restart 10, so that a few tenths of a second hold everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pliant.bins.knowledge import Config, Knowledge, Runtime, knowledge_of
from pliant.bins.plan import start_plan
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Drop,
    Failed,
    Finished,
    Journal,
    JournalEntry,
    Launch,
    Request,
    Result,
)
from pliant.simulate import simulate
from pliant.workload import Segment, piecewise
from tests.pliant.bins.worlds import bins

LOAD, RESTART = 0.02, 0.01  # seconds
SLOS = {"mail": 0.15, "chat": 0.05}  # seconds
UNEVEN = {32: (2, 4), 64: (1, 2, 8), 128: (1, 4), 256: (2,), 512: (1,)}  # batches by length
LONGEST = {"mail": 512, "chat": 128}  # tokens


def known(
    placement: str = "single", streams: int = 1, batches: tuple[int, ...] = (1,), runtimes: str = "all"
) -> Knowledge:
    """Without `batches`: those of short texts are larger, and the dynamic runtimes take one text."""
    some, most = (batches, 8) if batches else (UNEVEN, 1)
    mail = bins("mail", (64, 128, 256, 512), some, placement, SLOS["mail"], 1.0, LOAD, most)
    chat = bins("chat", (32, 128), some, placement, SLOS["chat"], 0.5, LOAD, most)
    return knowledge_of([mail, chat][:streams], runtimes)


def ask(id: int, at: float = 0.0, length: int = 20, task: str = "mail", within: float | None = None) -> Request:
    return Request(id, at, at + (SLOS[task] if within is None else within), task, 1.0, length)


def bursty(seed: int, seconds: float = 0.1, rates=(200, 1500, 100, 2500), streams: int = 1) -> list[Request]:
    """Mostly short texts, some as long as may be."""
    rng = np.random.default_rng(seed)
    times = piecewise([Segment(rate, seconds) for rate in rates], rng)
    return [_request(i, float(at), rng, streams) for i, at in enumerate(times)]


def _request(id: int, at: float, rng: np.random.Generator, streams: int) -> Request:
    task = ("mail", "chat")[int(rng.integers(streams))]
    length = int(np.clip(LONGEST[task] / 8 * rng.lognormal(0, 0.9), 1, LONGEST[task]))
    return ask(id, at, length, task)


@dataclass
class World:
    """Durations as in the profile times `slow`; runs, restarts and loads fail at the given rates."""

    seed: int = 0
    slow: float = 1.0
    failing: float = 0.0
    failing_restarts: float = 0.0
    failing_loads: float = 0.0
    jitter: float = 0.0
    lost: dict[int, tuple[float, float]] = field(default_factory=dict)  # worker -> from when until when all fails on it
    clock: Callable[[], float] = lambda: 0.0

    def over(
        self, requests: list[Request], knowledge: Knowledge
    ) -> Callable[[Launch], tuple[float, Finished | Failed]]:
        rng = np.random.default_rng(self.seed)
        device = SimulatedBins(knowledge, requests, rng, self.jitter)
        rates = {"run": self.failing, "restart": self.failing_restarts, "load": self.failing_loads}

        def execute(launch: Launch) -> tuple[float, Finished | Failed]:
            seconds, end = device(launch)
            seconds = {"run": seconds * self.slow, "restart": RESTART, "load": LOAD}[launch.kind]
            begin, end_of_loss = self.lost.get(launch.worker, (0.0, 0.0))
            if rng.random() < rates[launch.kind] or begin <= self.clock() < end_of_loss:
                return seconds / 2, Failed(launch.id, "planted")
            return seconds, Finished(launch.id, seconds, end.results)

        return execute


@dataclass
class Books:
    """Looks over the shoulder of a simulation: `check()` after every event, one fate a request, one launch a worker."""

    scheduler: BinsScheduler
    knowledge: Knowledge
    config: Config
    now: float = 0.0
    arrived: dict[int, Request] = field(default_factory=dict)
    fates: dict[int, Answer | Drop] = field(default_factory=dict)
    when: dict[int, float] = field(default_factory=dict)  # of each fate
    running: dict[int, int] = field(default_factory=dict)  # request -> launch
    busy: dict[int, int] = field(default_factory=dict)  # worker -> launch
    broken: set[int] = field(default_factory=set)
    failed: bool = False  # whether any launch has
    launches: dict[int, Launch] = field(default_factory=dict)
    holds: dict[int, int | None] = field(default_factory=dict)  # worker -> runtime (placement "single")
    active: list[int] = field(default_factory=list)  # devices in use after every event
    most_loading: int = 0  # devices that swapped at one time, other than after a restart
    counts: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)  # (when, devices that hold each runtime)

    def __post_init__(self) -> None:
        if self.knowledge.placement == "single":
            held = self.config.deployed or start_plan(self.knowledge, self.config.workers)
            self.holds = dict(enumerate(held))

    def __call__(self, entry: JournalEntry) -> None:
        self.now = entry.now
        self.scheduler.check()
        match entry.event:
            case Arrived(request):
                self.arrived[request.id] = request
            case Finished(launch) | Failed(launch):
                self._note_end(self.launches[launch], isinstance(entry.event, Finished))
        for action in entry.actions:
            if isinstance(action, Launch):
                self._note_launch(action)
            else:
                self._note_fate(action, entry)
        self._note_state()

    def _note_end(self, launch: Launch, well: bool) -> None:
        del self.busy[launch.worker]
        for request in launch.requests:
            del self.running[request]
        if not well:
            self.failed = True
            self.broken.add(launch.worker)
            self.holds |= {launch.worker: None} if self.holds else {}
        elif launch.kind == "restart":
            self.broken.discard(launch.worker)
        elif launch.kind == "load":
            self.holds[launch.worker] = self.runtime(launch.setting)

    def _note_fate(self, action: Answer | Drop, entry: JournalEntry) -> None:
        assert action.request not in self.fates, "one fate per request"
        assert action.request not in self.running, "what runs is neither answered nor dropped"
        self.fates[action.request], self.when[action.request] = action, entry.now
        request = self.arrived[action.request]
        if isinstance(action, Answer):
            assert isinstance(entry.event, Finished), "only the end of a launch answers"
            assert action.launch == entry.event.launch, "the answer is that of the launch that just ended"
            assert action.request in self.launches[action.launch].requests, "the launch ran the request"
        elif action.reason == "late":
            stranded = self.holds and self.failed
            assert stranded or entry.now <= request.deadline, "who is dropped as late hears of it before the deadline"
            assert self.config.drop_late or self.holds, "nobody is dropped as late where late ones are served"

    def _note_launch(self, launch: Launch) -> None:
        assert launch.id not in self.launches, "a launch id is used once"
        assert launch.worker not in self.busy, "a worker has one launch at a time"
        assert (launch.worker in self.broken) == (launch.kind == "restart"), "the broken are restarted, and only these"
        assert bool(launch.requests) == (launch.kind == "run"), "runs have requests, nothing else has"
        assert launch.kind != "load" or self.holds, "only where a device holds one runtime is there anything to load"
        if launch.kind == "run":
            self._note_run(launch)
        self.busy[launch.worker], self.launches[launch.id] = launch.id, launch
        self.running |= dict.fromkeys(launch.requests, launch.id)

    def _note_run(self, launch: Launch) -> None:
        assert not set(launch.requests) & (set(self.fates) | set(self.running)), (
            "once at a time, and not after its fate"
        )
        number = self.runtime(launch.setting)
        runtime = self.knowledge.runtimes[number]
        texts = [self.arrived[id] for id in launch.requests]
        stream = self.knowledge.streams[runtime.stream]
        assert {request.task for request in texts} == {stream.name}, "the shape is of the requests' stream"
        assert len(texts) <= batch(runtime, launch.setting), "no more texts than the shape has rows"
        assert max(request.length for request in texts) <= runtime.length, "no longer than the shape"
        assert not self.holds or self.holds[launch.worker] == number, "a device runs what it holds"

    def _note_state(self) -> None:
        self.active.append(self.scheduler.active)
        loading = [self.launches[id] for id in self.busy.values() if self.launches[id].kind == "load"]
        self.most_loading = max(self.most_loading, sum(self.holds[one.worker] is not None for one in loading))
        if self.holds:
            held = list(self.holds.values())
            self.counts.append((self.now, tuple(held.count(i) for i in range(len(self.knowledge.runtimes)))))
        elif not self.config.scaling:
            idle = self.config.workers - len(self.busy.keys() | self.broken)
            assert not (idle and self.scheduler.waiting), "no device idles while requests wait"

    def runtime(self, setting: int) -> int:
        """Number of the runtime that has this setting."""
        return next(i for i, one in enumerate(self.knowledge.runtimes) if setting in one.settings)


def batch(runtime: Runtime, setting: int) -> int:
    """Rows of the shape; the most of a dynamic one."""
    return runtime.batches[-1] if runtime.table else runtime.batches[runtime.settings.index(setting)]


def run(requests: list[Request], knowledge: Knowledge, world: World | None = None, **config) -> tuple[Journal, Books]:
    """A whole simulation with its books; every request has one fate at the end."""
    told = Config(**{"margin": 0.0, "restart_pause": 0.02, "period": 0.1, **config})
    fresh = BinsScheduler(knowledge, told)
    books, world = Books(fresh, knowledge, told), world or World()
    world.clock = lambda: books.now
    journal = simulate(fresh, requests, world.over(requests, knowledge), books)
    assert set(books.fates) == {request.id for request in requests}
    assert fresh.waiting == 0
    assert not books.busy
    return journal, books


def scheduler(knowledge: Knowledge, **config) -> BinsScheduler:
    """Without a margin unless one is given."""
    return BinsScheduler(knowledge, Config(**{"margin": 0.0, **config}))


def done(launch: Launch, seconds: float = 0.001) -> Finished:
    return Finished(launch.id, seconds, tuple(map(Result, launch.requests)))


def launches(actions: list[Action]) -> list[Launch]:
    return [action for action in actions if isinstance(action, Launch)]


def reasons(books: Books) -> set[str]:
    return {fate.reason for fate in books.fates.values()}
