"""OTAS as published (Chen et al. 2024, Algorithms 1, 2 and 3), with its defects, as a baseline.

- Batches are frozen when formed, and mix whatever differs by no more than mu in utility: with mu = 0.8 requests worth 1 and
  0.2 share a batch, and so a gamma, and cannot be parted under overload.
- Predicted time is count x per-sample latency, so the cost of starting a batch is unknown to it.
- A batch counts for its earliest deadline: if that cannot be kept, nothing of the batch counts.
- The dynamic programme keeps one state per (batch, gamma), see otas_plan.py.
- The rule of Algorithm 3 looks at the arrival rate alone, not at what has piled up.

Whether a plan is carried out whole or made anew whenever a device falls free is left open there. Made anew it earns more
and is the baseline `otas`; carried out whole it is `otas-kept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Request
from pliant.tokens.batched import ArrivalRate, Choice
from pliant.tokens.batching import Batch
from pliant.tokens.otas_plan import OtasBatch, otas_plan
from pliant.tokens.policy import Fleet, Knowledge


@dataclass(frozen=True, slots=True)
class OtasConfig:
    """The published values."""

    short_queue: int = 5  # beta: below this many batches Algorithm 3 decides
    settling: float = 2.0  # and in the first seconds
    valuable: float = 0.8  # kappa: mean utility beyond which Algorithm 3 takes the greatest gamma
    most: int = 64  # epsilon: the batch size whose latency per sample is planned with
    keeps: bool = False  # carries a plan out whole before it makes the next


class OtasChooser:
    trims = False

    def __init__(self, knowledge: Knowledge, workers: int, config: OtasConfig | None = None) -> None:
        self._config, self._workers = config or OtasConfig(), workers
        self._rate = ArrivalRate()
        self._began: float | None = None
        self._kept: list[tuple[Batch, int]] = []  # what is left of a plan
        self.learn(knowledge)

    def learn(self, knowledge: Knowledge) -> None:
        table, most = knowledge.latency, self._config.most
        self._kept = []
        self._settings, self._rule = table.settings, knowledge.rule
        self._sample_G = np.array([table.at(setting, most) / most for setting in table.settings])
        self._accuracy_G = {task: np.array([k[s] for s in table.settings]) for task, k in knowledge.accuracy.items()}

    def arrived(self, request: Request, now: float) -> None:
        del request
        self._began = now if self._began is None else self._began
        self._rate.add(now)

    def lost(self, worker: int) -> None: ...

    def choose(self, batches: Sequence[Batch], fleet: Fleet, now: float) -> Choice:
        self._kept = [(batch, index) for batch, index in self._kept if batch in batches]
        if self._kept:
            batch, index = self._kept.pop(0)
            return Choice(batch, self._settings[index])
        settled = self._began is not None and now >= self._began + self._config.settling
        if len(batches) < self._config.short_queue or not settled:
            return Choice(batches[0], self._settings[self._quick(batches[0], fleet, now)])
        planned = [self._planned(batch, fleet.slowdown) for batch in batches]
        chosen = otas_plan(planned, now)
        runs = [(batch, index) for batch, index in zip(batches, chosen, strict=True) if index >= 0]
        if not runs:  # none can end by its deadline, not even alone: all are evicted
            return Choice(None, evict=tuple(batches))
        if self._config.keeps:
            self._kept = runs[1:]
        return Choice(runs[0][0], self._settings[runs[0][1]])

    def _quick(self, batch: Batch, fleet: Fleet, now: float) -> int:
        """Algorithm 3: index of the setting for one batch."""
        rate = self._rate.at(now) * fleet.slowdown / self._workers
        gamma = self._rule.gamma(rate)
        index = min(range(len(self._settings)), key=lambda i: abs(self._settings[i] - gamma))
        if now + self._sample_G[index] * fleet.slowdown * len(batch.requests) > batch.earliest:
            return 0
        mean = sum(request.utility for request in batch.requests.values()) / len(batch.requests)
        return len(self._settings) - 1 if mean > self._config.valuable else index

    def _planned(self, batch: Batch, slowdown: float) -> OtasBatch:
        if batch.worth is None:
            batch.worth = np.sum([r.utility * self._accuracy_G[r.task] for r in batch.requests.values()], axis=0)
        return OtasBatch(batch.earliest, self._sample_G * (slowdown * len(batch.requests)), batch.worth)
