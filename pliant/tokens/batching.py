"""The waiting queue of the tokens system: requests gathered into batches as they arrive (OTAS, Algorithm 1).

Owns the waiting requests; decides nothing about when or how they run. Batches keep arrival order until they are planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pliant.protocol import Request


@dataclass(frozen=True, slots=True)
class BatchingConfig:
    """Algorithm 1's parameters, with the published values."""

    window: float = 0.5  # delta: seconds for which a batch stays open
    most: int = 64  # epsilon: requests in a batch
    deadline_gap: float = 0.5  # eta: seconds between a request's deadline and the opening request's
    utility_gap: float = 0.8  # mu: the same for utility


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that run together. The opening request stands for the batch when others ask to join."""

    opener: Request
    requests: dict[int, Request] = field(default_factory=dict)
    earliest: float = float("inf")  # deadline
    worth: NDArray[np.float64] | None = None  # a planner's cache: expected utility per setting; None when stale

    def add(self, request: Request) -> None:
        self.requests[request.id] = request
        self.earliest = min(self.earliest, request.deadline)
        self.worth = None

    def remove(self, request: int) -> None:
        del self.requests[request]
        self.earliest = min((r.deadline for r in self.requests.values()), default=float("inf"))
        self.worth = None


class Queue:
    """All waiting requests, each in exactly one batch."""

    def __init__(self, config: BatchingConfig) -> None:
        self._config = config
        self._batches: list[Batch] = []
        self._home: dict[int, Batch] = {}
        self._deadlines: list[tuple[float, int]] = []  # heap; entries of requests that left are skipped when met

    def __len__(self) -> int:
        return len(self._home)

    @property
    def batches(self) -> list[Batch]:
        """By earliest deadline."""
        return sorted(self._batches, key=_earliest)

    @property
    def count(self) -> int:
        return len(self._batches)

    def add(self, request: Request) -> None:
        """Algorithm 1: into the newest batch that fits, else into a new one."""
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
            and len(batch.requests) < config.most
            and abs(opener.deadline - request.deadline) <= config.deadline_gap
            and abs(opener.utility - request.utility) <= config.utility_gap
        )

    def take(self, batch: Batch) -> list[Request]:
        """Remove a batch from the queue and give its requests in arrival order."""
        self._batches.remove(batch)
        for request in batch.requests:
            del self._home[request]
        return list(batch.requests.values())

    def first_deadline(self) -> float | None:
        """The earliest deadline of all that wait."""
        while self._deadlines and self._deadlines[0][1] not in self._home:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expire(self, hopeless: Callable[[float], bool]) -> list[int]:
        """Remove every request whose deadline is hopeless, a monotone test, and give their ids by deadline."""
        gone = []
        while (deadline := self.first_deadline()) is not None and hopeless(deadline):
            gone.append(heapq.heappop(self._deadlines)[1])
            self._leave(gone[-1])
        return gone

    def _leave(self, request: int) -> None:
        batch = self._home.pop(request)
        batch.remove(request)
        if not batch.requests:
            self._batches.remove(batch)

    def forget_worth(self) -> None:
        """What planners cached holds no longer."""
        for batch in self._batches:
            batch.worth = None

    def ids(self) -> Iterable[int]:
        return self._home.keys()

    def check(self) -> None:
        """Every waiting request is in one batch, no batch is empty or too large."""
        assert sorted(i for b in self._batches for i in b.requests) == sorted(self._home)
        assert all(0 < len(b.requests) <= self._config.most for b in self._batches)
        assert all(b.earliest == min(r.deadline for r in b.requests.values()) for b in self._batches)


def _earliest(batch: Batch) -> float:
    return batch.earliest
