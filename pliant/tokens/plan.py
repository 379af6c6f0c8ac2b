"""Which gamma each waiting batch runs at, and which batches do not run: the exact Pareto frontier in deadline order.

Batches run one after the other by earliest deadline. After each batch the planner keeps every (clock, utility) pair that no
other pair beats in both; the published dynamic programme (OTAS, Algorithm 2) keeps one pair per (batch, gamma) and can
discard the start of the best plan. A request counts only if its batch ends by its own deadline. Also derives the
rate-to-gamma rule (OTAS, Table I) from a profile. Reads no clock and knows no queue: everything is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule

Floats = NDArray[np.float64]

DROP = -1
"""A plan's choice for a batch that does not run."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What the planner may know of a batch: one deadline per request, and what each request earns at each gamma."""

    deadlines: Floats  # [n] ascending, seconds on the planner's clock
    earned_after: Floats  # [gammas, n + 1]: utility at each gamma if the first i deadlines are missed

    @property
    def size(self) -> int:
        return len(self.deadlines)


def planned_batch(deadlines: Floats, value_GN: Floats) -> PlannedBatch:
    """From deadlines [n] and expected utility (utility x accuracy) per gamma and request [gammas, n], any order."""
    order = np.argsort(deadlines, kind="stable")
    earned = np.zeros((value_GN.shape[0], len(order) + 1))
    earned[:, :-1] = np.cumsum(value_GN[:, order[::-1]], axis=1)[:, ::-1]
    return PlannedBatch(deadlines[order], earned)


@dataclass(frozen=True, slots=True)
class Plan:
    """`choices[i]`: index into the gammas for batch i, or DROP; `utility` is what it expects to earn."""

    choices: tuple[int, ...]
    utility: float


@dataclass(frozen=True, slots=True)
class _Stage:
    parent: NDArray[np.intp]
    choice: NDArray[np.intp]


def plan(
    batches: Sequence[PlannedBatch], seconds_GN: Floats, clock: float, bucket: float = 0.0, devices: int = 1
) -> Plan:
    """The plan that earns most among all that run `batches` in the order given (earliest deadline first).

    `seconds_GN[g, n]` is the time of n requests at gamma g; `clock` is when the device falls free. `bucket` > 0 keeps one
    state per that share of the greatest possible utility, so a plan may lose up to that share per batch, and the frontier
    stays within 1 / bucket states. Several devices are taken for one that starts batches `devices` times as fast
    (exact for one).
    """
    step = bucket * sum(float(batch.earned_after[:, 0].max()) for batch in batches)
    clocks, earned = np.array([clock]), np.array([0.0])
    stages: list[_Stage] = []
    for batch in batches:
        clocks, earned, stage = _extend(batch, seconds_GN[:, batch.size], clocks, earned, devices)
        keep = _frontier(clocks, earned, step)
        clocks, earned = clocks[keep], earned[keep]
        stages.append(_Stage(stage.parent[keep], stage.choice[keep]))
    return Plan(_trace(stages, len(clocks) - 1), float(earned[-1]))


def _extend(
    batch: PlannedBatch, seconds_G: Floats, clocks: Floats, earned: Floats, devices: int
) -> tuple[Floats, Floats, _Stage]:
    """Every state continued by every gamma that still earns something, and by dropping the batch."""
    end_GS = clocks + seconds_G[:, None]
    missed_GS = batch.deadlines.searchsorted(end_GS.ravel()).reshape(end_GS.shape)
    gain_GS = np.take_along_axis(batch.earned_after, missed_GS, axis=1)
    choice, parent = gain_GS.nonzero()
    free = end_GS if devices == 1 else clocks + seconds_G[:, None] / devices
    states = len(clocks)
    parents = np.concatenate([np.arange(states), parent])
    choices = np.concatenate([np.full(states, DROP), choice])
    next_clocks = np.concatenate([clocks, free[choice, parent]])
    next_earned = np.concatenate([earned, earned[parent] + gain_GS[choice, parent]])
    return next_clocks, next_earned, _Stage(parents, choices)


def _frontier(clocks: Floats, earned: Floats, step: float) -> NDArray[np.intp]:
    """Indices of the states that no other beats in clock and utility, by ascending clock (and so utility)."""
    order = np.lexsort((-earned, clocks))
    value = earned[order] if step <= 0 else np.floor(earned[order] / step)
    best_before = np.maximum.accumulate(np.concatenate([[-np.inf], value[:-1]]))
    kept: NDArray[np.intp] = order[value > best_before]
    best = int(earned.argmax())
    # Bucketing may hide the very best state behind an earlier one of its bucket: it ends the frontier in any case.
    return kept if earned[kept[-1]] >= earned[best] else np.append(kept, best)


def _trace(stages: Sequence[_Stage], state: int) -> tuple[int, ...]:
    choices: list[int] = []
    for stage in reversed(stages):
        choices.append(int(stage.choice[state]))
        state = int(stage.parent[state])
    return tuple(reversed(choices))


def rate_rule(
    latency: LatencyTable, accuracy: Mapping[int, float], batch: int, within: float, utilisation: float = 1.0
) -> RateRule:
    """The gamma that earns most per second at each arrival rate, from the profile (takes the place of OTAS, Table I).

    At rate x a gamma answers min(x, capacity) requests a second at its accuracy; capacity is `utilisation` of its best
    throughput over batches up to `batch` that end `within` seconds. Exact: between neighbouring crossing points of
    these broken lines one gamma leads, so asking once in each interval is enough.
    """
    gammas = [gamma for gamma in latency.settings if gamma in accuracy]
    capacity = np.array([utilisation * latency.throughput(gamma, batch, within) for gamma in gammas])
    mean = np.array([accuracy[gamma] for gamma in gammas])
    crossings = np.unique((capacity * mean)[:, None] / np.maximum(mean, 1e-9)[None, :])
    edges = np.concatenate([[0.0], crossings, [2 * crossings[-1]]])
    middles = (edges[:-1] + edges[1:]) / 2
    leaders = [_leader(rate, capacity, mean) for rate in middles]
    changes = [i for i in range(1, len(leaders)) if leaders[i] != leaders[i - 1]]
    below = tuple(float(edges[i]) for i in changes)
    return RateRule(below, tuple(gammas[leaders[i]] for i in [0, *changes]))


def _leader(rate: float, capacity: Floats, mean: Floats) -> int:
    """Who earns most at this rate; among equals the one with capacity to spare."""
    earned = np.minimum(rate, capacity) * mean
    return int(np.lexsort((capacity, earned))[-1])
