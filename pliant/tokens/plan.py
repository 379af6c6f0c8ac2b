"""Which gamma each waiting batch runs at, and which batches do not run: an exact search in the order of deadlines.

Batches start one after the other by earliest deadline, each on the device that becomes free first. After each batch the
planner keeps every (clock, utility) pair that no other pair beats in both: a Pareto frontier. The published dynamic
programme (OTAS, Algorithm 2, in otas.py) keeps one pair per (batch, gamma) and can discard the start of the best
plan. A request counts only if its batch ends by its own deadline.

Also derives the rule from arrival rate to gamma (OTAS, Table I) from a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

DROP = -1
"""A plan's choice for a batch that does not run."""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What the planner needs of a batch: one deadline per request, and what each request earns at each gamma."""

    deadlines: Floats  # [n] ascending, seconds on the planner's clock
    earned_after: Floats  # [gammas, n + 1] utility at each gamma if the first i deadlines are missed

    @property
    def size(self) -> int:
        """Number of requests."""
        return len(self.deadlines)


def planned_batch(deadlines: Floats, value_GN: Floats) -> PlannedBatch:
    """Return the batch of these deadlines [n] and expected utilities [gammas, n] (utility x accuracy), in any order."""
    order = np.argsort(deadlines, kind="stable")
    earned = np.zeros((value_GN.shape[0], len(order) + 1))
    earned[:, :-1] = np.cumsum(value_GN[:, order[::-1]], axis=1)[:, ::-1]
    return PlannedBatch(deadlines[order], earned)


@dataclass(frozen=True, slots=True)
class Plan:
    """`choices[i]`: index of the gamma of batch i, or DROP; `utility`: what the plan is expected to earn."""

    choices: tuple[int, ...]
    utility: float


@dataclass(frozen=True, slots=True)
class _Frontier:
    """The states after some batches (S of them), by ascending clocks and ascending utility, on W devices."""

    total: Floats  # [S] sum of the devices' clocks, by which states are compared
    earned: Floats  # [S] utility
    clocks: Floats  # [S, W] ascending in each row


@dataclass(frozen=True, slots=True)
class _Stage:
    """For every state after a batch: the state before it, and the batch's choice."""

    parent: Indices
    choice: Indices


def plan(
    batches: Sequence[PlannedBatch],
    seconds_GN: Floats,
    clocks: Sequence[float],
    bucket: float = 0.0,
    price: float = 0.0,
) -> Plan:
    """Return the plan that is worth most among all that start `batches` in the order given (earliest deadline first).

    `seconds_GN[g, n]` are the seconds of n requests at gamma g (above 0); `clocks` says when each device becomes free.
    A plan's worth is its expected utility less `price` (utility per device-second, at least 0) times its device time.
    With price 0 this is the plan that earns most, otherwise one that leaves time to requests still to come where they
    would earn more with it. `bucket` > 0 bounds the frontier to 2 / bucket states: a longer one keeps one state per
    that share of the utility reached so far, so a plan may lose up to that share of the greatest possible utility per
    batch.

    Exact for one device (and bucket 0). For several, states are compared by the sum of their clocks: a heuristic, since
    of two states with equal sums one may have a device free earlier. The utility of a plan is exact in any case.
    """
    first = np.sort(np.asarray(clocks, dtype=float))[None]
    frontier = _Frontier(first.sum(axis=1), np.zeros(1), first)
    stages: list[_Stage] = []
    for batch in batches:
        frontier, stage = _extend(batch, seconds_GN[:, batch.size], frontier, bucket, price)
        stages.append(stage)
    best = int((frontier.earned - price * frontier.total).argmax())
    return Plan(_trace(stages, best), float(frontier.earned[best]))


def _extend(
    batch: PlannedBatch, seconds_G: Floats, before: _Frontier, bucket: float, price: float
) -> tuple[_Frontier, _Stage]:
    """Extend every state by dropping the batch and by every gamma worth its time; keep the states that no other beats.

    Leaving out a gamma that earns no more than its time is worth loses nothing: without that launch the rest starts no
    later (list scheduling of independent batches is monotone), so the plan is worth as much without it.
    """
    states = len(before.total)
    gain_GS = _gains(batch, before.clocks[:, 0] + seconds_G[:, None])
    runs = np.flatnonzero(gain_GS > price * seconds_G[:, None])
    total = np.concatenate([before.total, (before.total + seconds_G[:, None]).take(runs)])
    earned = np.concatenate([before.earned, (before.earned + gain_GS).take(runs)])
    kept = _frontier(total, earned, bucket)
    # Row DROP (the states before, unchanged) comes before the rows of the gammas.
    choice, parent = np.divmod(np.concatenate([np.arange(-states, 0), runs]).take(kept), states)
    clocks = _launch(before.clocks[parent], np.append(seconds_G, 0.0)[choice])
    return _Frontier(total[kept], earned[kept], clocks), _Stage(parent, choice)


def _gains(batch: PlannedBatch, end_GS: Floats) -> Floats:
    """Return what the batch earns at each gamma if it ends at these times [G, S]."""
    missed_GS = batch.deadlines.searchsorted(end_GS.ravel()).reshape(end_GS.shape)
    row = batch.size + 1
    gained: Floats = batch.earned_after.take(missed_GS + np.arange(0, row * len(end_GS), row)[:, None])
    return gained


def _launch(clocks_SW: Floats, seconds_S: Floats) -> Floats:
    """Return the clocks after the device that is free first has been busy for these seconds."""
    clocks_SW[:, 0] += seconds_S
    if clocks_SW.shape[1] > 1:
        clocks_SW.sort(axis=1)
    return clocks_SW


def _frontier(total: Floats, earned: Floats, bucket: float) -> Indices:
    """Return the indices of the states that no other beats in clock and utility, by ascending clock (and so utility).

    Of more than 2 / bucket states the earliest in each bucket of utility is kept, and the one that earns most.
    """
    order = total.argsort(kind="stable")  # the input is several ascending runs, which this sort merges
    top = np.maximum.accumulate(earned.take(order))
    new = np.empty(len(order), dtype=bool)
    new[0] = True
    np.greater(top[1:], top[:-1], out=new[1:])
    kept = order[new]
    kept = kept[_last_of_runs(total[kept])]  # of states with the same clock the last one earns most
    if bucket and len(kept) * bucket > 2:
        share = np.floor(earned[kept] / (bucket * earned[kept[-1]]))
        thin = np.concatenate([[True], share[1:] > share[:-1]])
        thin[-1] = True
        kept = kept[thin]
    return kept


def _last_of_runs(ascending: Floats) -> NDArray[np.bool_]:
    last = np.ones(len(ascending), dtype=bool)
    np.greater(ascending[1:], ascending[:-1], out=last[:-1])
    return last


def _trace(stages: Sequence[_Stage], state: int) -> tuple[int, ...]:
    choices: list[int] = []
    for stage in reversed(stages):
        choices.append(int(stage.choice[state]))
        state = int(stage.parent[state])
    return tuple(reversed(choices))


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
    leaders = [_leader(rate, capacity, mean) for rate in middles]
    changes = [i for i in range(1, len(leaders)) if leaders[i] != leaders[i - 1]]
    below = tuple(float(edges[i]) for i in changes)
    return RateRule(below, tuple(gammas[leaders[i]] for i in [0, *changes]))


def _leader(rate: float, capacity: Floats, mean: Floats) -> int:
    """Return the index of the gamma that earns most at this rate; among equals the one with the greatest capacity."""
    earned = np.minimum(rate, capacity) * mean
    return int(np.lexsort((capacity, earned))[-1])
