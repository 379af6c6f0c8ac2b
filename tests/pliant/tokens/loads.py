"""Loads and worlds for tests of the tokens scheduler: a small profile, bursty requests, devices that fail or drift.

Every policy can be put to every load: `known` gives the knowledge that fits it, `scheduler` makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pliant.journal import encode
from pliant.latency import LatencyTable
from pliant.protocol import Answer, Arrived, Changed, Drop, Failed, Finished, Journal, JournalEntry, Launch, Request
from pliant.simulate import simulate
from pliant.tokens.artifact import RateRule
from pliant.tokens.policies import POLICIES, make
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options, TokensScheduler
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

KNOWN = Knowledge(TABLE, ACCURACY, RULE)
VARIANTS = Knowledge(
    LatencyTable((0, 1, 2), BATCHES, (TABLE.seconds[0], TABLE.seconds[2], (0.040, 0.140, 0.550))),
    {"easy": {0: 0.8, 1: 0.9, 2: 0.97}, "hard": {0: 0.3, 1: 0.7, 2: 0.9}},
    RULE,
    {0: 0.05, 1: 0.1, 2: 0.2},
)
GAMMA_OF = {"tome": -10, "vpt": 4}
"""Where the published gamma is not in this profile."""

TRIMMING = tuple(policy for policy in POLICIES if not policy.startswith("otas"))
"""Policies that answer nothing late while durations are exact."""


def known(policy: str) -> Knowledge:
    return VARIANTS if policy == "infaas" else KNOWN


def scheduler(policy: str = "default", workers: int = 1, gamma: int | None = None, **options) -> TokensScheduler:
    """Without a margin unless one is given."""
    given = Options(**{"margin": 0.0, **options})
    return make(policy, known(policy), workers, GAMMA_OF.get(policy) if gamma is None else gamma, given)


def ask(id: int, at: float = 0.0, within: float = 1.0, task: str = "easy", utility: float = 1.0) -> Request:
    return Request(id, at, at + within, task, utility)


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
    known: Knowledge = KNOWN  # what is true; may be replaced while it goes on

    def over(self, load: list[Request]) -> Callable[[Launch], tuple[float, Finished | Failed]]:
        rng = np.random.default_rng(self.seed)
        devices: dict[int, SimulatedDevice] = {}

        def execute(launch: Launch) -> tuple[float, Finished | Failed]:
            if (now := id(self.known)) not in devices:
                true = self.known
                devices[now] = SimulatedDevice(true.latency, true.accuracy, load, rng, self.jitter, true.loading)
            seconds, end = devices[now](launch)
            seconds *= {"run": self.slow, "restart": 0.02, "load": 1.0}[launch.kind]
            share = self.failing if launch.kind == "run" else self.failing_restarts
            if rng.random() < share:
                return seconds / 2, Failed(launch.id, "planted")
            return seconds, Finished(launch.id, seconds, end.results)

        return execute


@dataclass
class Books:
    """Looks over the shoulder of a simulation: `check()` after every event, one fate per request, one launch a worker."""

    scheduler: TokensScheduler
    policy: str = "default"
    arrived: dict[int, Request] = field(default_factory=dict)
    fates: dict[int, Answer | Drop] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    busy: dict[int, int] = field(default_factory=dict)
    launches: dict[int, Launch] = field(default_factory=dict)
    loaded: dict[int, int] = field(default_factory=dict)  # worker -> variant; 0 unless told otherwise

    def __call__(self, entry: JournalEntry) -> None:
        self.scheduler.check()
        match entry.event:
            case Arrived(request):
                self.arrived[request.id] = request
            case Finished(launch) | Failed(launch):
                ended = self.launches[launch]
                del self.busy[ended.worker]
                if ended.kind == "load" and isinstance(entry.event, Finished):
                    self.loaded[ended.worker] = ended.setting
        for action in entry.actions:
            self._note(action, entry)

    def _note(self, action, entry: JournalEntry) -> None:
        if isinstance(action, Launch):
            self._note_launch(action)
            return
        assert action.request in self.arrived, "only what arrived has a fate"
        assert action.request not in self.fates, "one fate per request"
        self.fates[action.request] = action
        if isinstance(action, Answer):
            assert entry.event.launch == action.launch, "an answer comes from the launch that ended"
            assert action.request in self.launches[action.launch].requests
            if entry.now > self.arrived[action.request].deadline:
                self.late.append(action.request)

    def _note_launch(self, launch: Launch) -> None:
        assert launch.id not in self.launches, "a launch id is used once"
        assert launch.worker not in self.busy, "a worker has one launch at a time"
        assert not set(launch.requests) & set(self.fates), "what was answered or dropped does not run"
        assert bool(launch.requests) == (launch.kind == "run"), "runs have requests, nothing else has"
        if launch.kind == "restart":
            self.loaded.pop(launch.worker, None)
        elif launch.kind == "run" and self.policy == "infaas":
            assert launch.setting == self.loaded.get(launch.worker, 0), "a worker runs what it has loaded"
        self.busy[launch.worker], self.launches[launch.id] = launch.id, launch


@dataclass
class Informed:
    """A scheduler that is told a new knowledge in place of every request numbered below 0, and what it then wrote."""

    inner: TokensScheduler
    changes: Sequence[Knowledge]
    world: World
    books: Books
    journal: Journal = field(default_factory=list)

    def handle(self, event, now: float):
        if isinstance(event, Arrived) and event.request.id < 0:
            self.world.known = self.changes[-event.request.id - 1]
            event = Changed(self.world.known.plain())
        actions = self.inner.handle(event, now)
        self.journal.append(JournalEntry(now, event, tuple(actions)))
        self.books(self.journal[-1])
        return actions

    def wake_at(self) -> float | None:
        return self.inner.wake_at()

    def check(self) -> None:
        self.inner.check()


def run(
    load: list[Request],
    world: World | None = None,
    workers: int = 1,
    policy: str = "default",
    changes: Sequence[tuple[float, Knowledge]] = (),
    fresh: TokensScheduler | None = None,
    **options,
) -> tuple[Journal, Books]:
    """A whole simulation with its books; every request has one fate at the end. `changes`: when, and to what."""
    world = world or World()
    world.known = known(policy) if fresh is None else world.known
    fresh = fresh or scheduler(policy, workers, **options)
    told = Informed(fresh, [new for _, new in changes], world, Books(fresh, policy))
    marks = [ask(-1 - i, at) for i, (at, _) in enumerate(changes)]
    simulate(told, [*load, *marks], world.over(load))
    books = told.books
    assert set(books.fates) == {request.id for request in load}
    assert fresh.waiting == 0
    assert not books.busy
    return told.journal, books


def text(journal: Journal) -> list[str]:
    return [encode(entry) for entry in journal]
