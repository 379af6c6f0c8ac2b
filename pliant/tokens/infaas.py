"""Model switching by load (INFaaS, Romero et al. 2021, as a baseline in OTAS, section 5): several backbones, one resident.

The variant is the most accurate one whose capacity covers the arrival rate; changing it occupies the worker for the loading
time, which is what token adaptation saves. Settings are numbers of variants, the cheapest 0; a worker starts with 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.errors import InputError
from pliant.protocol import Request
from pliant.tokens.batched import ArrivalRate, Choice
from pliant.tokens.batching import Batch
from pliant.tokens.policy import Fleet, Knowledge


@dataclass(frozen=True, slots=True)
class InfaasConfig:
    headroom: float = 0.9  # share of a variant's capacity that may be planned for
    hold: float = 5.0  # seconds between changes to a larger variant; to a smaller one it may change at once
    most: int = 64  # requests in a batch


class InfaasChooser:
    trims = True

    def __init__(self, knowledge: Knowledge, workers: int, config: InfaasConfig | None = None) -> None:
        self._config, self._workers = config or InfaasConfig(), workers
        self._rate = ArrivalRate()
        self._loaded = [0] * workers
        self._changed: list[float] = []  # per worker; the beginning counts, when every load looks quiet
        self.learn(knowledge)

    def learn(self, knowledge: Knowledge) -> None:
        table = knowledge.latency
        if table.settings != tuple(range(len(table.settings))):
            raise InputError("variants", table.settings, "numbered from 0")
        self._loading = knowledge.loading
        self._capacity = [table.throughput(variant, self._config.most) for variant in table.settings]
        self._mean = [float(np.mean([known[v] for known in knowledge.accuracy.values()])) for v in table.settings]

    def arrived(self, request: Request, now: float) -> None:
        del request
        self._changed = self._changed or [now] * self._workers
        self._rate.add(now)

    def lost(self, worker: int) -> None:
        self._loaded[worker] = 0

    def choose(self, batches: Sequence[Batch], fleet: Fleet, now: float) -> Choice:
        worker = fleet.worker
        wanted, loaded = self._wanted(fleet.slowdown, now), self._loaded[worker]
        if wanted < loaded or (wanted > loaded and now >= self._changed[worker] + self._config.hold):
            self._loaded[worker], self._changed[worker] = wanted, now
            return Choice(None, wanted, load=self._loading.get(wanted, 0.0))
        return Choice(batches[0], loaded)

    def _wanted(self, slowdown: float, now: float) -> int:
        """The most accurate variant that keeps up; where none does, the one with the greatest capacity."""
        rate = self._rate.at(now) * slowdown / self._workers
        able = [v for v, most in enumerate(self._capacity) if rate <= self._config.headroom * most]
        return max(able, key=self._mean.__getitem__) if able else int(np.argmax(self._capacity))
