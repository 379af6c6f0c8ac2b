"""Token adaptation as published (OTAS, Algorithm 2): the baseline for the planner of plan.py.

Its defect is kept on purpose. Per (batch, gamma) it keeps one state with its clock, the one that earned most. A state
that earned less but ended earlier is discarded, though it may leave room for more later, so the plan need not be the
best even by its own estimate. Two coarse assumptions belong to it as well. A batch has one deadline, that of its
earliest request, so it counts as a whole or not at all. It takes the sum of its requests' single times, whatever the
device saves on larger batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

DROP = -1
"""A choice for a batch that does not run (index 0 in the paper)."""


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
        utility_K, clock_K, parent_K = _step(batches[i], utility_K, clock_K)
        came_from.append(parent_K.tolist())
    return _trace(order, came_from, int(utility_K.argmax()))


def _step(batch: OtasBatch, utility_K: Floats, clock_K: Floats) -> tuple[Floats, Floats, NDArray[np.intp]]:
    """Return utility, clock and parent of the best way to every choice [1 + G] for this batch; -inf: there is none."""
    choices = len(batch.seconds_G) + 1
    end_KC = np.empty((len(clock_K), choices))
    end_KC[:, 0] = clock_K
    np.add(clock_K[:, None], batch.seconds_G, out=end_KC[:, 1:])
    total_KC = np.empty_like(end_KC)
    total_KC[:, 0] = utility_K
    np.add(utility_K[:, None], batch.utility_G, out=total_KC[:, 1:])
    total_KC[:, 1:][end_KC[:, 1:] > batch.deadline] = -np.inf
    parent_C = total_KC.argmax(axis=0)
    chosen = parent_C, np.arange(choices)
    return total_KC[chosen], end_KC[chosen], parent_C


def _trace(order: Sequence[int], came_from: Sequence[Sequence[int]], last: int) -> tuple[int, ...]:
    chosen = [DROP] * len(order)
    for i, parents in zip(reversed(order), reversed(came_from), strict=True):
        chosen[i] = last - 1
        last = parents[last]
    return tuple(chosen)
