"""How many devices each runtime gets: the published programme of Arlo (Eq. 1-7, as restated in issue 5), solved exactly.

Minimise sum L_i(B_i) C_i over whole N_i with sum N_i = G, N_i >= floor(Q_i / M_i) and N_I >= 1, where R_0 = 0,
R_i = max(R_{i-1} + Q_i - N_i M_i, 0), C_i = min(R_{i-1} + Q_i, N_i M_i), C_I = R_{I-1} + Q_I, B_i = C_i / N_i.
A runtime without devices serves nothing and costs nothing: all that came to it is carried on to the longer ones.

Solved by a dynamic programme over the bins. Let V_i(g, R) be the least cost of the bins from i on with g devices and
carry R, for latencies that are not negative and do not fall as B rises:

- V_i rises with R. For the last bin it is L((R + Q) / N) (R + Q). For another one take the same N: C, hence L(C / N) C,
  and the next carry do not fall as R rises, V_{i+1} does not fall with its carry, and which N are allowed does not
  depend on R.
- V_i falls with g: give what is more to the last bin, whose C stays and whose B falls.

So of two states before a bin, (devices used, carry, cost), one that is no greater in all three makes the other needless.
At most one state without carry is left for each number of devices. Those with carry are few, since a bin carries on only
below ceil((R + Q) / M) devices, and N >= floor(Q / M). A state is also needless if its cost and a bound on what is
still to pay (`least_costs` of the kernel: the same programme backwards on a coarse grid of carries, always rounded
down) come to no less than a solution that is known. The search runs with ever more states and finer bounds until none
was left out that might have led to less. Nothing here knows of dispatch, time, or how a plan is put in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Attempts = Sequence[tuple[int, float]]  # most states kept before each bin, operations spent on bounds

ROUNDING = 1e-12  # of the cost: what is not better by more than this counts as equal
ATTEMPTS: Attempts = ((64, 1e6), (512, 2e7), (2048, 1e8), (8192, 2e9))
LEVELS = 2048  # of carry, at most


@dataclass(frozen=True, slots=True)
class Demand:
    """What comes to one runtime, and how well one device with it serves."""

    requests: float  # Q: mean number within one SLO
    capacity: float  # M: requests that one device serves within the SLO
    latency: tuple[float, ...]  # L at B = 0, 1, ... outstanding requests; linear between, the last slope beyond

    def __post_init__(self) -> None:
        if not 0 <= self.requests < math.inf:
            raise InputError("requests", self.requests, "finite and not negative")
        if not 0 < self.capacity < math.inf:
            raise InputError("capacity", self.capacity, "finite and positive")
        if not self.latency:
            raise InputError("latency", self.latency, "at least one value")
        for backlog, (before, value) in enumerate(pairwise((0.0, *self.latency))):
            if not before <= value < math.inf:
                raise InputError(f"latency at {backlog}", value, f"finite and at least the one before, {before}")

    def latency_at(self, backlog: float) -> float:
        """L(B) in seconds."""
        last = len(self.latency) - 1
        if last == 0:
            return self.latency[0]
        below = min(int(backlog), last - 1)
        return self.latency[below] + (backlog - below) * (self.latency[below + 1] - self.latency[below])


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of each runtime of one stream."""

    counts: tuple[int, ...]
    cost: float  # of this stream: sum L_i(B_i) C_i
    feasible: bool  # False: too few devices for all N_i >= floor(Q_i / M_i), solved without these bounds
    gap: float  # of all streams together: at most this share of the cost above the least; 0 where proven exact


def allocate(demands: Sequence[Demand], devices: int, attempts: Attempts = ATTEMPTS) -> Allocation:
    """The best of all allocations of `devices` to runtimes in ascending length. Errors: as `allocate_streams`."""
    return allocate_streams([demands], devices, attempts)[0]


def allocate_streams(
    streams: Sequence[Sequence[Demand]], devices: int, attempts: Attempts = ATTEMPTS
) -> tuple[Allocation, ...]:
    """The best of all allocations of `devices` to the runtimes of several streams, the sum of whose costs is least.

    Every stream's last runtime has at least one device. All streams keep the bounds N_i >= floor(Q_i / M_i) if there
    are devices for that, else none does. Fewer `attempts` bound the time where a proof takes long (overload of
    hundreds of devices): the result's `gap` tells. Raises `InputError` for a stream without runtimes or without a device.
    """
    if not streams or not all(streams):
        raise InputError("streams", [len(stream) for stream in streams], "at least one, each of at least one runtime")
    if devices < len(streams):
        raise InputError("devices", devices, f"at least one a stream, {len(streams)}")
    least = [least_counts(stream) for stream in streams]
    feasible = sum(map(sum, least)) <= devices
    if not feasible:
        least = [[0] * (len(stream) - 1) + [1] for stream in streams]
    counts, gap = _solve(_Chain.of(streams, least, devices), attempts)
    ends = list(accumulate(map(len, streams), initial=0))
    split = [tuple(counts[start:end]) for start, end in pairwise(ends)]
    return tuple(Allocation(n, published_cost(s, n), feasible, gap) for s, n in zip(streams, split, strict=True))


def least_counts(demands: Sequence[Demand]) -> list[int]:
    """The bounds on N_i: floor(Q_i / M_i), and one device for the last runtime."""
    least = [int(demand.requests / demand.capacity) for demand in demands]
    return [*least[:-1], max(least[-1], 1)]


def published_cost(demands: Sequence[Demand], counts: Sequence[int]) -> float:
    """sum L_i(B_i) C_i of any allocation; request-seconds within one SLO."""
    carry = total = 0.0
    for i, (demand, count) in enumerate(zip(demands, counts, strict=True)):
        load = carry + demand.requests
        served = load if i == len(demands) - 1 else min(load, count * demand.capacity)
        carry = load - served
        total += demand.latency_at(served / count) * served if served else 0.0
    return total


@dataclass(frozen=True, slots=True)
class _Chain:
    """All streams one after another. A stream's last runtime has infinite capacity: it serves all that is left."""

    requests_I: Floats
    capacity_I: Floats
    least_I: Ints
    latency_IB: Floats
    price_I: Floats  # [I + 1] each request carried into bin i costs at least so much
    most_carry_I: Floats  # [I + 1] into bin i
    spare: int  # devices beyond the least

    @classmethod
    def of(cls, streams: Sequence[Sequence[Demand]], least: Sequence[Sequence[int]], devices: int) -> _Chain:
        prices, carries = [], []
        for stream, counts in zip(streams, least, strict=True):
            prices += [min(d.latency[0] for d in stream[i:]) for i in range(len(stream))]
            left = [max(d.requests - n * d.capacity, 0.0) for d, n in zip(stream[:-1], counts, strict=False)]
            carries += list(accumulate(left, initial=0.0))
        demands = list(chain(*streams))
        requests_I = np.array([demand.requests for demand in demands])
        capacity_I = np.array([c for s in streams for c in (*(d.capacity for d in s[:-1]), math.inf)])
        least_I = np.array(list(chain(*least)), dtype=np.int64)
        bounds_I = np.array([*prices, 0.0]), np.array([*carries, 0.0])
        return cls(requests_I, capacity_I, least_I, _table(demands), *bounds_I, devices - int(least_I.sum()))


def _table(demands: Sequence[Demand]) -> Floats:
    """[I, B] latencies, the shorter ones continued by their last slope; at least two columns."""
    longest = max(2, *(len(demand.latency) for demand in demands), 0)
    rows = [[*d.latency, *(d.latency_at(b) for b in range(len(d.latency), longest))] for d in demands]
    return np.array(rows, dtype=np.float64)


def _solve(programme: _Chain, attempts: Attempts) -> tuple[list[int], float]:
    """Counts and the proven gap."""
    best, counts, bound = np.inf, [0], -np.inf
    for width, work in attempts:
        found, better, left_out = _search(programme, width, work, best)
        if better is not None:
            best, counts = found, better
        bound = max(bound, min(best, left_out))
        if bound >= best * (1.0 - ROUNDING):
            return counts, 0.0
    return counts, 1.0 - bound / best


def _search(programme: _Chain, width: int, work: float, best: float) -> tuple[float, list[int] | None, float]:
    """A solution better than `best` if there is one among the `width` states of lowest bound before each bin.

    Returns its cost and counts, and the lowest bound of the states left out.
    """
    from pliant.bins.planning.allocate_kernel import (  # a bare GPU machine lacks numba
        bounds_of,
        least_costs,
        undominated,
    )

    p = programme
    levels = int(min(max(2 * work / (len(p.requests_I) * (p.spare + 1.0) ** 2), 1), LEVELS))
    step_I = p.most_carry_I / levels
    to_go_IPS = least_costs(p.requests_I, p.capacity_I, p.least_I, p.latency_IB, p.price_I, step_I, levels, p.spare)
    used, carry, cost = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1)
    left_out, path = np.inf, []
    for i in range(len(p.requests_I)):
        ahead = (to_go_IPS[i + 1], step_I[i + 1], p.price_I[i + 1])
        after, carry, cost, parent = _advance(p, i, (used, carry, cost), ahead, best * (1.0 - ROUNDING))
        bound_K = bounds_of(*ahead, after, carry, cost)
        kept, dropped = _lowest(bound_K, np.lexsort((cost, carry, after)), 16 * width)
        kept = kept[undominated(after[kept], carry[kept], cost[kept])]
        kept, too = _lowest(bound_K, kept, width)
        left_out = min(left_out, dropped, too)
        path.append((after[kept] - used[parent[kept]], parent[kept]))
        used, carry, cost = after[kept], carry[kept], cost[kept]
    if len(used) == 0:
        return best, None, left_out
    return float(cost[0]), _traced(p, path), left_out


def _lowest(bound_K: Floats, states: Ints, most: int) -> tuple[Ints, float]:
    """At most so many of these states, in their order, and the lowest bound of those left out."""
    if len(states) <= most:
        return states, math.inf
    ranked = np.argsort(bound_K[states], kind="stable")
    return states[np.sort(ranked[:most])], float(bound_K[states[ranked[most]]])


def _advance(
    p: _Chain, i: int, states: tuple[Ints, Floats, Floats], ahead: tuple[Floats, float, float], below: float
) -> tuple[Ints, Floats, Floats, Ints]:
    """States after bin i that may lead to less than `below`: used, carry, cost, and the state before."""
    from pliant.bins.planning.allocate_kernel import advance_carried, advance_served, bounds_of

    bin_ = (p.requests_I[i], p.capacity_I[i], p.least_I[i], p.latency_IB[i])
    cost_S, parent_S = advance_served(*states, *bin_, p.spare)
    after = np.flatnonzero(np.isfinite(cost_S))
    after = after[bounds_of(*ahead, after, np.zeros(len(after)), cost_S[after]) < below]
    served = (after, np.zeros(len(after)), cost_S[after], parent_S[after])
    carried = _empty(advance_carried(*states, *bin_, *ahead, below, _empty(0)))
    advance_carried(*states, *bin_, *ahead, below, carried)
    used, carry, cost, parent = (np.concatenate(pair) for pair in zip(served, carried, strict=True))
    return used, carry, cost, parent


def _empty(room: int) -> tuple[Ints, Floats, Floats, Ints]:
    return np.empty(room, np.int64), np.empty(room), np.empty(room), np.empty(room, np.int64)


def _traced(p: _Chain, path: Sequence[tuple[Ints, Ints]]) -> list[int]:
    """Counts of all bins, from the end back."""
    counts, state = [], 0
    for extra, parent in reversed(path):
        counts.append(int(extra[state]))
        state = int(parent[state])
    return [int(least) + extra for least, extra in zip(p.least_I, reversed(counts), strict=True)]
