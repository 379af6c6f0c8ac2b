"""The inner loops of allocate.py, compiled by numba. See there for the programme and why it is exact.

Suffixes: I bins (all streams one after another), P levels of carry, S + 1 numbers of spare devices, K states. A state
before some bin is (spare devices used, carry, cost so far). Spare devices are those beyond the minimum of every bin.
The last bin of a stream has infinite capacity here: it serves all that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
States = tuple[Ints, Floats, Floats]
"""[K] spare devices used, carry and cost."""
Bin = tuple[float, float, int, Floats]
"""Requests, capacity, least devices and [B] latencies."""
Ahead = tuple[Floats, float, float]
"""Of the bins behind: [P, S + 1] least costs to come, the step between two levels of carry, and the price of a rest."""
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile by numba at the first call, and store the result beside this file for the next process."""
    return cast(F, njit(cache=True)(function))


@compiled
def latency_at(latency_B: Floats, backlog: float) -> float:
    """Return L(B): linear between whole B, with the last slope beyond. `latency_B` has at least two points."""
    below = min(int(backlog), len(latency_B) - 2)
    return float(latency_B[below] + (backlog - below) * (latency_B[below + 1] - latency_B[below]))


@compiled
def served(latency_B: Floats, capacity: float, load: float, count: int) -> tuple[float, float]:
    """Return the cost of `count` devices under this load, and what they carry on: L(C / N) C with C = min(load, N M)."""
    if count == 0 or load == 0.0:
        return 0.0, load
    if count * capacity < load:
        return latency_at(latency_B, capacity) * count * capacity, load - count * capacity
    return latency_at(latency_B, load / count) * load, 0.0


@compiled
def least_costs(
    requests_I: Floats,
    capacity_I: Floats,
    least_I: Ints,
    latency_IB: Floats,
    price_I: Floats,
    step_I: Floats,
    levels: int,
    spare: int,
) -> Floats:
    """Return [I + 1, P, S + 1] lower bounds on the cost of the bins from i on with carry p x step and s spare devices.

    This is the programme itself backwards, but after each bin the carry is rounded down to the next level. What that
    leaves out is charged at price_I, the least latency of the bins to come.
    """
    bins = len(requests_I)
    to_go_IPS = np.full((bins + 1, levels, spare + 1), np.inf)
    to_go_IPS[bins, :, 0] = 0.0
    for i in range(bins - 1, -1, -1):
        for p in range(levels if step_I[i] > 0.0 else 1):
            for extra in range(spare + 1):
                load = requests_I[i] + p * step_I[i]
                cost, carry = served(latency_IB[i], capacity_I[i], load, least_I[i] + extra)
                level = level_of(carry, step_I[i + 1], levels)
                cost += (carry - level * step_I[i + 1]) * price_I[i + 1]
                for s in range(extra, spare + 1):
                    to_go_IPS[i, p, s] = min(to_go_IPS[i, p, s], cost + to_go_IPS[i + 1, level, s - extra])
    return to_go_IPS


@compiled
def level_of(carry: float, step: float, levels: int) -> int:
    """Return the level of carry at or below `carry`."""
    return min(int(carry / step), levels - 1) if step > 0.0 else 0


@compiled
def bound_of(ahead: Ahead, spare_left: int, carry: float) -> float:
    """Return the least cost that is still to come, from `least_costs`."""
    to_go_PS, step, price = ahead
    level = level_of(carry, step, len(to_go_PS))
    return float(to_go_PS[level, spare_left] + (carry - level * step) * price)


@compiled
def bounds_of(ahead: Ahead, used_K: Ints, carry_K: Floats, cost_K: Floats) -> Floats:
    """Return [K] the least total that each state can lead to."""
    bound_K = np.empty(len(used_K))
    for k in range(len(used_K)):
        spare_left = ahead[0].shape[1] - 1 - used_K[k]
        bound_K[k] = cost_K[k] + bound_of(ahead, spare_left, carry_K[k])
    return bound_K


@compiled
def advance_served(states: States, bin_: Bin, spare: int) -> tuple[Floats, Ints]:
    """Return [S + 1] least cost and its state, by spare devices used, where this bin serves all its load."""
    (used_K, carry_K, cost_K), (requests, capacity, least, latency_B) = states, bin_
    best_S, parent_S = np.full(spare + 1, np.inf), np.full(spare + 1, -1)
    for k in range(len(used_K)):
        load = requests + carry_K[k]
        for after in range(used_K[k], spare + 1):
            count = least + after - used_K[k]
            if count * capacity >= load:
                cost = cost_K[k] + (latency_at(latency_B, load / count) * load if load > 0.0 else 0.0)
                if cost < best_S[after]:
                    best_S[after], parent_S[after] = cost, k
    return best_S, parent_S


@compiled
def advance_carried(
    states: States, bin_: Bin, ahead: Ahead, below: float, into: tuple[Ints, Floats, Floats, Ints]
) -> int:
    """Write the states (used, carry, cost, parent) in which this bin carries on and that may end below `below`.

    Returns how many there are; those that do not fit into `into` are only counted.
    """
    (used_K, carry_K, cost_K), (requests, capacity, least, latency_B) = states, bin_
    number = 0
    spare = ahead[0].shape[1] - 1
    for k in range(len(used_K)):
        for after in range(used_K[k], spare + 1):
            count = least + after - used_K[k]
            if count * capacity >= requests + carry_K[k]:
                break
            cost, carry = served(latency_B, capacity, requests + carry_K[k], count)
            cost += cost_K[k]
            if cost + bound_of(ahead, spare - after, carry) < below:
                if number < len(into[0]):
                    into[0][number], into[1][number], into[2][number], into[3][number] = after, carry, cost, k
                number += 1
    return number


@compiled
def undominated(used_K: Ints, carry_K: Floats, cost_K: Floats) -> NDArray[np.bool_]:
    """Return which states no other one equals or betters in all three values; they come sorted by (used, carry, cost).

    The frontier over (carry, cost) of the states so far rises in carry and falls in cost, so each state needs a search
    and a shift.
    """
    keep_K = np.zeros(len(used_K), np.bool_)
    carries, costs = np.empty(len(used_K)), np.empty(len(used_K))
    length = 0
    for k in range(len(used_K)):
        at = np.searchsorted(carries[:length], carry_K[k], side="right")
        if at > 0 and costs[at - 1] <= cost_K[k]:
            continue
        keep_K[k] = True
        first = at - 1 if at > 0 and carries[at - 1] == carry_K[k] else at
        end = first
        while end < length and costs[end] >= cost_K[k]:
            end += 1
        carries[first + 1 : length + 1 + first - end] = carries[end:length].copy()
        costs[first + 1 : length + 1 + first - end] = costs[end:length].copy()
        carries[first], costs[first] = carry_K[k], cost_K[k]
        length += 1 + first - end
    return keep_K
