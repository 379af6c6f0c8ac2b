"""OTAS as published (Chen et al. 2024, Algorithms 1, 2 and 3), with its defects: a baseline.

- Batches are frozen when they are formed, and mix requests whose utilities differ by up to mu. With mu = 0.8, requests of
  utility 1 and 0.2 share a batch, hence a gamma, and overload cannot separate them.
- Predicted time is count x seconds per sample, so the fixed cost of starting a batch is ignored.
- A batch counts by its earliest deadline: if that is missed, nothing in the batch earns anything.
- The dynamic programme keeps one state per (batch, gamma), see otas_plan.py.
- Algorithm 3 looks at the arrival rate alone, not at the backlog.

The paper leaves open whether a plan is carried out whole or planned again whenever a device becomes free. Planning
again earns more and is the baseline `otas`; carrying a plan out whole is `otas-kept`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Request
from pliant.tokens.batched import ArrivalRate, Choice
from pliant.tokens.batching import Batch
from pliant.tokens.otas_plan import OtasBatch, otas_plan
from pliant.tokens.policy import Knowledge, PoolState


@dataclass(frozen=True, slots=True)
class OtasConfig:
    """The published parameters; times in seconds."""

    short_queue: int = 5  # beta: with fewer waiting batches Algorithm 3 decides
    settling: float = 2.0  # seconds from the first arrival during which Algorithm 3 decides
    valuable: float = 0.8  # kappa: above this mean utility Algorithm 3 takes the greatest gamma
    max_batch: int = 64  # epsilon: seconds per sample are taken from this batch size
    keeps: bool = False  # whether a plan is carried out whole before the next one is made


class OtasChooser:
    """Choose batch and gamma as OTAS does: Algorithm 3 while few batches wait, Algorithm 2 otherwise."""

    trims = False

    def __init__(self, knowledge: Knowledge, workers: int, config: OtasConfig | None = None) -> None:
        self._config, self._workers = config or OtasConfig(), workers
        self._rate = ArrivalRate()
        self._began: float | None = None
        self._remaining: list[tuple[Batch, int]] = []  # the part of a plan that has not run yet
        self.learn(knowledge)

    def learn(self, knowledge: Knowledge) -> None:
        table, most = knowledge.latency, self._config.max_batch
        self._remaining = []
        self._settings, self._rule = table.settings, knowledge.rule
        self._sample_G = np.array([knowledge.at(setting, most) / most for setting in table.settings])
        self._accuracy_G = {task: np.array([k[s] for s in table.settings]) for task, k in knowledge.accuracy.items()}

    def arrived(self, request: Request, now: float) -> None:
        del request
        self._began = now if self._began is None else self._began
        self._rate.add(now)

    def lost(self, worker: int) -> None: ...

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        self._remaining = [(batch, index) for batch, index in self._remaining if batch in batches]
        if self._remaining:
            batch, index = self._remaining.pop(0)
            return Choice(batch, self._settings[index])
        settled = self._began is not None and now >= self._began + self._config.settling
        if len(batches) < self._config.short_queue or not settled:
            return Choice(batches[0], self._settings[self._by_rate(batches[0], pool, now)])
        planned = [self._otas_batch(batch, pool.slowdown) for batch in batches]
        chosen = otas_plan(planned, now)
        runs = [(batch, index) for batch, index in zip(batches, chosen, strict=True) if index >= 0]
        if not runs:  # No batch can end by its deadline, not even alone: all are evicted.
            return Choice(None, evict=tuple(batches))
        if self._config.keeps:
            self._remaining = runs[1:]
        return Choice(runs[0][0], self._settings[runs[0][1]])

    def _by_rate(self, batch: Batch, pool: PoolState, now: float) -> int:
        """Return the index of the gamma that Algorithm 3 gives to `batch`."""
        rate = self._rate.at(now) * pool.slowdown / self._workers
        gamma = self._rule.gamma(rate)
        index = min(range(len(self._settings)), key=lambda i: abs(self._settings[i] - gamma))
        if now + self._sample_G[index] * pool.slowdown * len(batch.requests) > batch.earliest:
            return 0
        mean = sum(request.utility for request in batch.requests.values()) / len(batch.requests)
        return len(self._settings) - 1 if mean > self._config.valuable else index

    def _otas_batch(self, batch: Batch, slowdown: float) -> OtasBatch:
        if batch.worth is None:
            batch.worth = np.sum([r.utility * self._accuracy_G[r.task] for r in batch.requests.values()], axis=0)
        return OtasBatch(batch.earliest, self._sample_G * (slowdown * len(batch.requests)), batch.worth)
