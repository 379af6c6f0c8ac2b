"""What the baselines have in common: policies over batches that are frozen when formed (OTAS, Algorithm 1).

The policy owns the queue; a chooser says which batch runs next and at which setting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.protocol import Request
from pliant.tokens.batching import Batch, BatchingConfig, Queue
from pliant.tokens.policy import Decision, Knowledge, PoolState, check_tasks

Floats = NDArray[np.float64]


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
    """A policy (see policy.py) over the queue of Algorithm 1."""

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
        self._queue.forget_worth()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def batches(self) -> int:
        return self._queue.count

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
        served = self._queue.take(choice.batch)
        if self._chooser.trims:
            served, late = self._in_time(served, choice.setting, pool, now)
            evicted += tuple(request.id for request in late)
        seconds = float(self._seconds_GN[self._index[choice.setting], len(served)])
        return Decision(tuple(served), choice.setting, seconds, evicted)

    def _in_time(
        self, requests: list[Request], setting: int, pool: PoolState, now: float
    ) -> tuple[list[Request], list[Request]]:
        """Split the requests into those that one launch can answer in time and the late ones."""
        row = self._seconds_GN[self._index[setting]] * pool.slowdown
        served = sorted(requests, key=lambda r: r.deadline)
        while served and now + row[len(served)] > served[0].deadline:
            served.pop(0)
        ids = {request.id for request in served}
        return [r for r in requests if r.id in ids], [r for r in requests if r.id not in ids]

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
