"""What the baselines have in common: policies over batches that are frozen when formed (OTAS, Algorithm 1).

Requests are gathered into batches as they arrive, which stay in order of arrival. The policy owns that queue; a chooser says
which batch runs next and at which setting: here one fixed setting, or models switched by load; otas.py has the third.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.protocol import Request
from pliant.tokens.scheduler import Decision, Knowledge, PoolState, check_tasks

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    """Parameters of Algorithm 1, with the published values."""

    window: float = 0.5  # delta: seconds for which a batch stays open
    max_batch: int = 64  # epsilon: requests in a batch
    deadline_gap: float = 0.5  # eta: most seconds between the deadlines of a request and of the opening request
    utility_gap: float = 0.8  # mu: most difference between their utilities


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run together. New requests are compared with the opening request."""

    opener: Request
    requests: dict[int, Request] = field(default_factory=dict)
    earliest: float = float("inf")  # the earliest deadline
    worth: NDArray[np.float64] | None = None  # expected utility per setting, cached by a planner; None when stale

    def add(self, request: Request) -> None:
        """Add a request."""
        self.requests[request.id] = request
        self.earliest = min(self.earliest, request.deadline)
        self.worth = None

    def remove(self, request: int) -> None:
        """Remove the request of this id."""
        del self.requests[request]
        self.earliest = min((r.deadline for r in self.requests.values()), default=float("inf"))
        self.worth = None


class Queue:
    """All waiting requests, each in exactly one batch."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self._batches: list[Batch] = []
        self._home: dict[int, Batch] = {}
        self._deadlines: list[tuple[float, int]] = []  # a heap; entries of requests that left are skipped at the top

    def __len__(self) -> int:
        return len(self._home)

    @property
    def batches(self) -> list[Batch]:
        """Waiting batches by earliest deadline."""
        return sorted(self._batches, key=lambda batch: batch.earliest)

    def add(self, request: Request) -> None:
        """Add a request to the newest batch that fits, or to a new one (Algorithm 1)."""
        batch = next((b for b in reversed(self._batches) if self._fits(b, request)), None)
        if batch is None:
            batch = Batch(request)
            self._batches.append(batch)
        batch.add(request)
        self._home[request.id] = batch
        heapq.heappush(self._deadlines, (request.deadline, request.id))

    def _fits(self, batch: Batch, request: Request) -> bool:
        opener, config = batch.opener, self._config
        return (
            opener.arrival + config.window >= request.arrival
            and len(batch.requests) < config.max_batch
            and abs(opener.deadline - request.deadline) <= config.deadline_gap
            and abs(opener.utility - request.utility) <= config.utility_gap
        )

    def take(self, batch: Batch) -> list[Request]:
        """Remove a batch from the queue and return its requests in order of arrival."""
        self._batches.remove(batch)
        for request in batch.requests:
            del self._home[request]
        return list(batch.requests.values())

    def first_deadline(self) -> float | None:
        """Return the earliest deadline of all waiting requests; None where nothing waits."""
        while self._deadlines and self._deadlines[0][1] not in self._home:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, hopeless: Callable[[float], bool]) -> list[int]:
        """Remove every request whose deadline is hopeless and return their ids, earliest deadline first.

        `hopeless` must be monotone: what holds for one deadline holds for all earlier ones.
        """
        expired = []
        while (deadline := self.first_deadline()) is not None and hopeless(deadline):
            expired.append(heapq.heappop(self._deadlines)[1])
            self.remove(expired[-1])
        return expired

    def remove(self, request: int) -> None:
        """Remove the waiting request of this id."""
        batch = self._home.pop(request)
        batch.remove(request)
        if not batch.requests:
            self._batches.remove(batch)

    def ids(self) -> Iterable[int]:
        """Return the ids of all waiting requests."""
        return self._home.keys()

    def check(self) -> None:
        """Assert that every waiting request is in one batch, and that no batch is empty or too large."""
        assert sorted(i for b in self._batches for i in b.requests) == sorted(self._home)
        assert all(0 < len(b.requests) <= self._config.max_batch for b in self._batches)
        assert all(b.earliest == min(r.deadline for r in b.requests.values()) for b in self._batches)


@dataclass(frozen=True, slots=True)
class Choice:
    """Run `batch` at `setting`, or first load variant `setting`; the batches in `evict` are dropped."""

    batch: Batch | None
    setting: int = 0
    evict: tuple[Batch, ...] = ()
    load: float | None = None  # seconds


class Chooser(Protocol):
    """Which batch runs next, and at which setting."""

    trims: bool
    """Whether requests that would be late are dropped before their batch runs."""

    def arrived(self, request: Request, now: float) -> None:
        """Note that a request arrived."""

    def lost(self, worker: int) -> None:
        """Note that a worker is restarted, so that what it had loaded is gone."""

    def learn(self, knowledge: Knowledge) -> None:
        """Use this profile from now on. Raises `InputError` where it lacks what the chooser needs."""

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        """Return the choice for the free worker. `batches`: all waiting ones by earliest deadline, at least one."""


class ArrivalRate:
    """Requests a second over the last `window` seconds."""

    def __init__(self, window: float = 1.0) -> None:
        self._window = window
        self._times: deque[float] = deque()

    def add(self, now: float) -> None:
        """Note that a request arrives now."""
        self._times.append(now)
        self._forget(now)

    def at(self, now: float) -> float:
        """Return the requests a second at time `now`."""
        self._forget(now)
        return len(self._times) / self._window

    def _forget(self, now: float) -> None:
        while self._times and self._times[0] < now - self._window:
            self._times.popleft()


class BatchedPolicy:
    """A policy (see scheduler.py) over the queue of Algorithm 1."""

    fair = False

    def __init__(self, knowledge: Knowledge, chooser: Chooser, batching: BatchingConfig | None = None) -> None:
        self._batching = batching or BatchingConfig()
        self._queue = Queue(self._batching)
        self._chooser = chooser
        self._set_knowledge(knowledge)

    def _set_knowledge(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._seconds_GN = knowledge.seconds(self._batching.max_batch)
        self._index = {setting: i for i, setting in enumerate(knowledge.latency.settings)}
        self._fastest = float(self._seconds_GN[:, 1].min())

    @property
    def knowledge(self) -> Knowledge:
        return self._knowledge

    def learn(self, knowledge: Knowledge) -> None:
        check_tasks(knowledge, (r.task for batch in self._queue.batches for r in batch.requests.values()))
        self._chooser.learn(knowledge)
        self._set_knowledge(knowledge)
        for batch in self._queue.batches:
            batch.worth = None  # what planners cached, as accuracies have changed

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, request: Request, now: float, again: bool = False) -> None:
        check_tasks(self._knowledge, (request.task,))
        if not again:
            self._chooser.arrived(request, now)
        self._queue.add(request)

    def cancel(self, request: int) -> None:
        self._queue.remove(request)

    def expire(self, now: float, slowdown: float) -> list[int]:
        return self._queue.expire(lambda deadline: now >= deadline - self._fastest * slowdown)

    def wake_at(self, slowdown: float) -> float | None:
        deadline = self._queue.first_deadline()
        return None if deadline is None else deadline - self._fastest * slowdown

    def lost(self, worker: int) -> None:
        self._chooser.lost(worker)

    def decide(self, pool: PoolState, now: float) -> Decision:
        choice = self._chooser.choose(self._queue.batches, pool, now)
        evicted = tuple(request.id for batch in choice.evict for request in self._queue.take(batch))
        if choice.load is not None:
            return Decision((), choice.setting, choice.load, evicted, load=True)
        if choice.batch is None:
            return Decision(drop=evicted)
        served, row = self._queue.take(choice.batch), self._seconds_GN[self._index[choice.setting]]
        if self._chooser.trims:  # to those that one launch can answer in time
            in_time = sorted(served, key=lambda r: r.deadline)
            while in_time and now + row[len(in_time)] * pool.slowdown > in_time[0].deadline:
                in_time.pop(0)
            ids = {request.id for request in in_time}
            evicted += tuple(request.id for request in served if request.id not in ids)
            served = [request for request in served if request.id in ids]
        return Decision(tuple(served), choice.setting, float(row[len(served)]), evicted)

    def ids(self) -> Iterable[int]:
        return self._queue.ids()

    def check(self) -> None:
        self._queue.check()


class FixedChooser:
    """Run the batch of the earliest deadline at one setting: PetS (gamma 0), ToMe (one gamma < 0) and VPT (one > 0).

    Requests that would be late are dropped before they cost time. The published systems do not do that: it makes the
    baselines stronger.
    """

    trims = True

    def __init__(self, setting: int) -> None:
        self._setting = setting

    def arrived(self, request: Request, now: float) -> None: ...

    def lost(self, worker: int) -> None: ...

    def learn(self, knowledge: Knowledge) -> None:
        knowledge.latency.row(self._setting)

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        del pool, now
        return Choice(batches[0], self._setting)


@dataclass(frozen=True, slots=True)
class InfaasConfig:
    """When a worker changes its variant."""

    headroom: float = 0.9  # share of a variant's capacity that the arrival rate may take
    hold: float = 5.0  # seconds between changes to a larger variant; a change to a smaller one does not wait
    max_batch: int = 64  # requests


class InfaasChooser:
    """Model switching by load, a baseline of OTAS (section 5) after INFaaS (Romero et al. 2021).

    There are several backbones, of which a worker has one loaded, at first the cheapest. The variant is the most accurate
    one whose capacity covers the arrival rate. Changing it occupies the worker for the loading time, which token adaptation
    avoids. Settings are indices of variants, the cheapest 0.
    """

    trims = True

    def __init__(self, knowledge: Knowledge, workers: int, config: InfaasConfig | None = None) -> None:
        self._config, self._workers = config or InfaasConfig(), workers
        self._rate = ArrivalRate()
        self._loaded = [0] * workers
        self._changed: list[float] = []  # per worker; from the first arrival on, as any load looks quiet at first
        self.learn(knowledge)

    def learn(self, knowledge: Knowledge) -> None:
        table = knowledge.latency
        if table.settings != tuple(range(len(table.settings))):
            raise InputError("variants", table.settings, "numbered from 0")
        self._loading = knowledge.loading
        self._capacity = [table.throughput(variant, self._config.max_batch) for variant in table.settings]
        self._mean = [float(np.mean([shares[v] for shares in knowledge.accuracy.values()])) for v in table.settings]

    def arrived(self, request: Request, now: float) -> None:
        del request
        self._changed = self._changed or [now] * self._workers
        self._rate.add(now)

    def lost(self, worker: int) -> None:
        self._loaded[worker] = 0

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        worker = pool.worker
        wanted, loaded = self._wanted(pool.slowdown, now), self._loaded[worker]
        if wanted < loaded or (wanted > loaded and now >= self._changed[worker] + self._config.hold):
            self._loaded[worker], self._changed[worker] = wanted, now
            return Choice(None, wanted, load=self._loading.get(wanted, 0.0))
        return Choice(batches[0], loaded)

    def _wanted(self, slowdown: float, now: float) -> int:
        """Return the most accurate variant that keeps up; where none does, the one of the greatest capacity."""
        rate = self._rate.at(now) * slowdown / self._workers
        sufficient = [v for v, capacity in enumerate(self._capacity) if rate <= self._config.headroom * capacity]
        return max(sufficient, key=self._mean.__getitem__) if sufficient else int(np.argmax(self._capacity))
