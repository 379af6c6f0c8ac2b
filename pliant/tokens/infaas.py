"""Model switching by load, a baseline of OTAS (section 5) after INFaaS (Romero et al. 2021).

There are several backbones, of which a worker has one loaded, at first the cheapest. The variant is the most accurate
one whose capacity covers the arrival rate. Changing it occupies the worker for the loading time, which token adaptation
avoids. Settings are indices of variants, the cheapest 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.errors import InputError
from pliant.protocol import Request
from pliant.tokens.batched import ArrivalRate, Choice
from pliant.tokens.batching import Batch
from pliant.tokens.policy import Knowledge, PoolState


@dataclass(frozen=True, slots=True)
class InfaasConfig:
    """When a worker changes its variant."""

    headroom: float = 0.9  # share of a variant's capacity that the arrival rate may take
    hold: float = 5.0  # seconds between changes to a larger variant; a change to a smaller one does not wait
    max_batch: int = 64  # requests


class InfaasChooser:
    """Load the variant that the load allows, and run the batch of the earliest deadline with it."""

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
