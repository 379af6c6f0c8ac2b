"""Loads and worlds for tests of the tokens scheduler: a small profile, bursty requests, devices that fail or drift."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Drop, Failed, Finished, Journal, JournalEntry, Launch, Request
from pliant.simulate import simulate
from pliant.tokens.artifact import RateRule
from pliant.tokens.batching import BatchingConfig
from pliant.tokens.scheduler import TokensConfig, TokensScheduler
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import RequestKind, Segment, piecewise, requests

GAMMAS = (-10, -5, 0, 4)
BATCHES = (1, 4, 16)
TABLE = LatencyTable(
    GAMMAS, BATCHES, ((0.010, 0.020, 0.060), (0.012, 0.030, 0.100), (0.016, 0.044, 0.160), (0.020, 0.060, 0.220))
)
ACCURACY = {"easy": {-10: 0.8, -5: 0.9, 0: 0.95, 4: 0.96}, "hard": {-10: 0.2, -5: 0.5, 0: 0.7, 4: 0.8}}
RULE = RateRule((60.0, 90.0, 150.0), (4, 0, -5, -10))
KINDS = (
    RequestKind("easy", 0.15, 0.3),
    RequestKind("easy", 0.5, 0.6),
    RequestKind("hard", 0.3, 1.0),
    RequestKind("hard", 2.0, 0.0),
)


def config(**changes) -> TokensConfig:
    given = {"latency": TABLE, "accuracy": ACCURACY, "rule": RULE, "gammas": GAMMAS, "margin": 0.0}
    given["batching"] = BatchingConfig(window=0.1, most=16)
    return TokensConfig(**{**given, **changes})


def bursty(seed: int, seconds: float = 1.0, rates=(40, 400, 80, 700)) -> list[Request]:
    rng = np.random.default_rng(seed)
    return requests(piecewise([Segment(rate, seconds) for rate in rates], rng), KINDS, rng)


@dataclass
class World:
    """Durations as in the table times `slow`; launches and restarts fail at the given rates."""

    seed: int = 0
    slow: float = 1.0
    failing: float = 0.0
    failing_restarts: float = 0.0
    jitter: float = 0.0

    def over(self, load: list[Request]) -> Callable[[Launch], tuple[float, Finished | Failed]]:
        rng = np.random.default_rng(self.seed)
        device = SimulatedDevice(TABLE, ACCURACY, load, rng, self.jitter)

        def execute(launch: Launch) -> tuple[float, Finished | Failed]:
            seconds, end = device(launch)
            share = self.failing if launch.kind == "run" else self.failing_restarts
            if rng.random() < share:
                return seconds / 2, Failed(launch.id, "planted")
            seconds *= self.slow if launch.kind == "run" else 0.02
            return seconds, Finished(launch.id, seconds, end.results)

        return execute


@dataclass
class Books:
    """Looks over the shoulder of a simulation: `check()` after every event, one fate per request, one launch a worker."""

    scheduler: TokensScheduler
    arrived: dict[int, Request] = field(default_factory=dict)
    fates: dict[int, Answer | Drop] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    slowdowns: list[float] = field(default_factory=list)
    busy: dict[int, int] = field(default_factory=dict)
    launches: dict[int, Launch] = field(default_factory=dict)

    def __call__(self, entry: JournalEntry) -> None:
        self.scheduler.check()
        match entry.event:
            case Arrived(request):
                self.arrived[request.id] = request
            case Finished(launch) | Failed(launch):
                del self.busy[self.launches[launch].worker]
        for action in entry.actions:
            self._note(action, entry)

    def _note(self, action, entry: JournalEntry) -> None:
        if isinstance(action, Launch):
            assert action.id not in self.launches, "a launch id is used once"
            assert action.worker not in self.busy, "a worker has one launch at a time"
            assert not set(action.requests) & set(self.fates), "what was answered or dropped does not run"
            self.busy[action.worker], self.launches[action.id] = action.id, action
            return
        assert action.request in self.arrived, "only what arrived has a fate"
        assert action.request not in self.fates, "one fate per request"
        self.fates[action.request] = action
        if isinstance(action, Answer):
            assert entry.event.launch == action.launch, "an answer comes from the launch that ended"
            assert action.request in self.launches[action.launch].requests
            if entry.now > self.arrived[action.request].deadline:
                self.late.append(action.request)


def run(load: list[Request], world: World, workers: int = 1, **changes) -> tuple[Journal, Books]:
    """A whole simulation with its books; every request has one fate at the end."""
    scheduler = TokensScheduler(config(**changes), workers)
    books = Books(scheduler)
    journal = simulate(scheduler, load, world.over(load), books)
    assert set(books.fates) == {request.id for request in load}
    assert scheduler.waiting == 0
    assert not books.busy
    return journal, books
