"""OTAS as published (Chen et al. 2024, Algorithms 1, 2 and 3), with its defects: a baseline.

- Batches are frozen when they are formed, and mix requests whose utilities differ by up to mu. With mu = 0.8, requests of
  utility 1 and 0.2 share a batch, hence a gamma, and overload cannot separate them.
- Predicted time is count x seconds per sample, so the fixed cost of starting a batch is ignored.
- A batch counts by its earliest deadline: if that is missed, nothing in the batch earns anything.
- The dynamic programme keeps one state per (batch, gamma) with its clock, the one that earned most. A state that earned
  less but ended earlier is discarded, though it may leave room for more later.
- Algorithm 3 looks at the arrival rate alone, not at the backlog.

The paper leaves open whether a plan is carried out whole or planned again whenever a device becomes free. Planning
again earns more, and is the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.artifact import RateRule
from pliant.tokens.batched import ArrivalRate, Batch, Choice
from pliant.tokens.scheduler import Knowledge, PoolState

Floats = NDArray[np.float64]

DROP = -1
"""A choice for a batch that does not run (index 0 in the paper)."""


@dataclass(frozen=True, slots=True)
class OtasConfig:
    """The published parameters; times in seconds."""

    short_queue: int = 5  # beta: with fewer waiting batches Algorithm 3 decides
    settling: float = 2.0  # seconds from the first arrival during which Algorithm 3 decides
    valuable: float = 0.8  # kappa: above this mean utility Algorithm 3 takes the greatest gamma
    max_batch: int = 64  # epsilon: seconds per sample are taken from this batch size


class OtasChooser:
    """Choose batch and gamma as OTAS does: Algorithm 3 while few batches wait, Algorithm 2 otherwise."""

    trims = False

    def __init__(self, knowledge: Knowledge, workers: int, config: OtasConfig | None = None) -> None:
        self._config, self._workers = config or OtasConfig(), workers
        self._rate = ArrivalRate()
        self._began: float | None = None
        self.learn(knowledge)

    def learn(self, knowledge: Knowledge) -> None:
        table, most = knowledge.latency, self._config.max_batch
        self._settings, self._rule = table.settings, knowledge.rule
        self._sample_G = np.array([knowledge.at(setting, most) / most for setting in table.settings])
        self._accuracy_G = {task: np.array([k[s] for s in table.settings]) for task, k in knowledge.accuracy.items()}

    def arrived(self, request: Request, now: float) -> None:
        del request
        self._began = now if self._began is None else self._began
        self._rate.add(now)

    def lost(self, worker: int) -> None: ...

    def choose(self, batches: Sequence[Batch], pool: PoolState, now: float) -> Choice:
        settled = self._began is not None and now >= self._began + self._config.settling
        if len(batches) < self._config.short_queue or not settled:
            return Choice(batches[0], self._settings[self._by_rate(batches[0], pool, now)])
        planned = []
        for batch in batches:
            if batch.worth is None:
                batch.worth = np.sum([r.utility * self._accuracy_G[r.task] for r in batch.requests.values()], axis=0)
            seconds_G = self._sample_G * (pool.slowdown * len(batch.requests))
            planned.append(OtasBatch(batch.earliest, seconds_G, batch.worth))
        chosen = otas_plan(planned, now)
        runs = [(batch, index) for batch, index in zip(batches, chosen, strict=True) if index >= 0]
        if not runs:  # No batch can end by its deadline, not even alone: all are evicted.
            return Choice(None, evict=tuple(batches))
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


@dataclass(frozen=True, slots=True)
class OtasBatch:
    """A batch as Algorithm 2 sees it; arrays have one value per gamma (G of them)."""

    deadline: float  # of its earliest request, seconds on the planner's clock
    seconds_G: Floats  # predicted: sum over tasks of count x seconds per sample
    utility_G: Floats  # expected: sum over requests of utility x accuracy


def otas_plan(batches: Sequence[OtasBatch], clock: float) -> tuple[int, ...]:
    """Return the index of each batch's gamma, or DROP, in the order given; the device becomes free at time `clock`.

    Batches run by deadline (among equals in the order given). A gamma is allowed after a state if the batch then ends
    by its deadline. Of several states that lead to the same (batch, gamma) with the same utility the first is kept: not
    running comes first, then the gammas in their order.
    """
    if not batches:
        return ()
    order = sorted(range(len(batches)), key=lambda i: batches[i].deadline)
    utility_K, clock_K = np.zeros(1), np.full(1, clock)  # K: the choices for the batch before; 0 means "do not run"
    came_from = []
    for i in order:
        batch, choices = batches[i], len(batches[i].seconds_G) + 1
        end_KC = np.hstack([clock_K[:, None], clock_K[:, None] + batch.seconds_G])
        total_KC = np.hstack([utility_K[:, None], utility_K[:, None] + batch.utility_G])
        total_KC[:, 1:][end_KC[:, 1:] > batch.deadline] = -np.inf
        parent_C = total_KC.argmax(axis=0)
        best = parent_C, np.arange(choices)
        utility_K, clock_K = total_KC[best], end_KC[best]
        came_from.append(parent_C.tolist())
    chosen, last = [DROP] * len(order), int(utility_K.argmax())
    for i, parents in zip(reversed(order), reversed(came_from), strict=True):
        chosen[i] = last - 1
        last = parents[last]
    return tuple(chosen)


def rate_rule(latency: LatencyTable, accuracy: Mapping[int, float], batch: int, within: float) -> RateRule:
    """Return the gamma that earns most per second at each arrival rate, from the profile (it replaces OTAS, Table I).

    At rate x a gamma answers min(x, capacity) requests a second at its accuracy. Its capacity is its best
    throughput over batches of up to `batch` that end within `within` seconds. Exact: between neighbouring crossing
    points of these broken lines one gamma leads, so one test per interval is enough.
    """
    gammas = [gamma for gamma in latency.settings if gamma in accuracy]
    capacity = np.array([latency.throughput(gamma, batch, within) for gamma in gammas])
    mean = np.array([accuracy[gamma] for gamma in gammas])
    crossings = np.unique((capacity * mean)[:, None] / np.maximum(mean, 1e-9)[None, :])
    edges = np.concatenate([[0.0], crossings, [2 * crossings[-1]]])
    middles = (edges[:-1] + edges[1:]) / 2
    # Among gammas that earn the same at a rate the one with the greatest capacity leads.
    leaders = [int(np.lexsort((capacity, np.minimum(rate, capacity) * mean))[-1]) for rate in middles]
    changes = [i for i in range(1, len(leaders)) if leaders[i] != leaders[i - 1]]
    below = tuple(float(edges[i]) for i in changes)
    return RateRule(below, tuple(gammas[leaders[i]] for i in [0, *changes]))
