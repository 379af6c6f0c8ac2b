"""The waiting queue of the OTAS baselines: requests are gathered into batches as they arrive (Algorithm 1).

Batches stay in order of arrival. The queue does not decide when or how they run.
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

    @property
    def count(self) -> int:
        """Number of waiting batches."""
        return len(self._batches)

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

    def forget_worth(self) -> None:
        """Drop what planners cached, as accuracies have changed."""
        for batch in self._batches:
            batch.worth = None

    def ids(self) -> Iterable[int]:
        """Return the ids of all waiting requests."""
        return self._home.keys()

    def check(self) -> None:
        """Assert that every waiting request is in one batch, and that no batch is empty or too large."""
        assert sorted(i for b in self._batches for i in b.requests) == sorted(self._home)
        assert all(0 < len(b.requests) <= self._config.max_batch for b in self._batches)
        assert all(b.earliest == min(r.deadline for r in b.requests.values()) for b in self._batches)
