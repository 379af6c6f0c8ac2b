"""How many devices each runtime gets: the published programme of Arlo (Eq. 1-7, in the form below), solved exactly.

Minimise sum L_i(B_i) C_i over whole N_i with sum N_i = G, N_i >= floor(Q_i / M_i) and N_I >= 1, where

    R_0 = 0, R_i = max(R_{i-1} + Q_i - N_i M_i, 0),
    C_i = min(R_{i-1} + Q_i, N_i M_i), C_I = R_{I-1} + Q_I, B_i = C_i / N_i.

Bin i is a runtime, in ascending length: Q_i requests come to it, one device serves M_i within the SLO, it has N_i
devices, serves C_i requests, carries R_i on to the next longer one, and has latency L_i with B_i outstanding requests
per device. A runtime without devices serves nothing and costs nothing: it carries on all that came to it.

Solved by a dynamic programme over the bins. Let V_i(g, R) be the least cost of the bins from i on with g devices and
carry R, for latencies that are not negative and do not fall as B rises:

- V_i rises with R. For the last bin it is L((R + Q) / N) (R + Q). For another one take the same N: C, hence L(C / N) C,
  and the next carry do not fall as R rises, V_{i+1} does not fall with its carry, and which N are allowed does not
  depend on R.
- V_i falls with g: give the additional devices to the last bin, whose C stays and whose B falls.

So of two states before a bin, (devices used, carry, cost), one that is no greater in all three makes the other
needless. At most one state without carry is left for each number of devices. Those with carry are few, since a bin
carries on only below ceil((R + Q) / M) devices, and N >= floor(Q / M). A state is also needless if its cost plus a
lower bound on the cost to come (`least_costs` of the kernel: the same programme backwards on a coarse grid of carries,
always rounded down) is no less than the cost of a known solution. The search is repeated with more states and finer
bounds until no state was left out that might have led to less.
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
Attempts = Sequence[tuple[int, float]]  # states kept before each bin at most, operations spent on bounds

ROUNDING = 1e-12  # share of the cost: a smaller difference counts as equal
ATTEMPTS: Attempts = ((64, 1e6), (512, 2e7), (2048, 1e8), (8192, 2e9))
LEVELS = 2048  # levels of carry at most, in the bounds


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests of one runtime, and how fast a device serves them. Raises `InputError` for impossible values."""

    requests: float  # Q: mean number within one SLO
    capacity: float  # M: requests that one device serves within the SLO
    latency: tuple[float, ...]  # L in seconds at B = 0, 1, ... outstanding requests; the last slope goes on

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
        """Return L(B) in seconds, interpolated linearly."""
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
    feasible: bool  # False: too few devices for N_i >= floor(Q_i / M_i), solved without these bounds
    gap: float  # of all streams: at most this share of the cost above the optimum; 0: proven exact


def allocate(demands: Sequence[Demand], devices: int, attempts: Attempts = ATTEMPTS) -> Allocation:
    """Return the best allocation of `devices` to runtimes of ascending length. Raises as `allocate_streams`."""
    return allocate_streams([demands], devices, attempts)[0]


def allocate_streams(
    streams: Sequence[Sequence[Demand]], devices: int, attempts: Attempts = ATTEMPTS
) -> tuple[Allocation, ...]:
    """Return the allocation of `devices` to the runtimes of several streams whose total cost is least.

    Every stream's last runtime has at least one device. All streams keep the bounds N_i >= floor(Q_i / M_i) if there
    are enough devices, otherwise none does. Fewer `attempts` limit the time where a proof takes long (overload of
    hundreds of devices); the result's `gap` says how far from the optimum it may be. Raises `InputError` for a stream
    without runtimes or without a device.
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
    """Return the bounds on N_i: floor(Q_i / M_i), and at least one device for the last runtime."""
    least = [int(demand.requests / demand.capacity) for demand in demands]
    return [*least[:-1], max(least[-1], 1)]


def published_cost(demands: Sequence[Demand], counts: Sequence[int]) -> float:
    """Return sum L_i(B_i) C_i of any allocation, in request-seconds within one SLO."""
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
    price_I: Floats  # [I + 1] least cost of each request that is carried into bin i
    max_carry_I: Floats  # [I + 1] greatest carry into bin i
    spare: int  # devices beyond the bounds

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
    """Return [I, B] latencies, the shorter ones continued by their last slope; at least two columns."""
    longest = max(2, *(len(demand.latency) for demand in demands), 0)
    rows = [[*d.latency, *(d.latency_at(b) for b in range(len(d.latency), longest))] for d in demands]
    return np.array(rows, dtype=np.float64)


def _solve(programme: _Chain, attempts: Attempts) -> tuple[list[int], float]:
    """Return counts and the proven gap."""
    best, counts, bound = np.inf, [0], -np.inf
    for width, work in attempts:
        cost, better, left_out = _search(programme, width, work, best)
        if better is not None:
            best, counts = cost, better
        bound = max(bound, min(best, left_out))
        if bound >= best * (1.0 - ROUNDING):
            return counts, 0.0
    return counts, 1.0 - bound / best


def _search(programme: _Chain, width: int, work: float, best: float) -> tuple[float, list[int] | None, float]:
    """Look for a solution better than `best` among the `width` states of lowest bound before each bin.

    Returns its cost and counts (None if there is none), and the lowest bound of the states left out.
    """
    from pliant.bins.planning.allocate_kernel import (  # a bare GPU machine lacks numba
        bounds_of,
        least_costs,
        undominated,
    )

    p = programme
    levels = int(min(max(2 * work / (len(p.requests_I) * (p.spare + 1.0) ** 2), 1), LEVELS))
    step_I = p.max_carry_I / levels
    to_go_IPS = least_costs(p.requests_I, p.capacity_I, p.least_I, p.latency_IB, p.price_I, step_I, levels, p.spare)
    used, carry, cost = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1)
    left_out, path = np.inf, []
    for i in range(len(p.requests_I)):
        ahead = (to_go_IPS[i + 1], step_I[i + 1], p.price_I[i + 1])
        after, carry, cost, parent = _advance(p, i, (used, carry, cost), ahead, best * (1.0 - ROUNDING))
        bound_K = bounds_of(ahead, after, carry, cost)
        kept, dropped = _lowest(bound_K, np.lexsort((cost, carry, after)), 16 * width)
        kept = kept[undominated(after[kept], carry[kept], cost[kept])]
        kept, cut_off = _lowest(bound_K, kept, width)
        left_out = min(left_out, dropped, cut_off)
        path.append((after[kept] - used[parent[kept]], parent[kept]))
        used, carry, cost = after[kept], carry[kept], cost[kept]
    if len(used) == 0:
        return best, None, left_out
    return float(cost[0]), _traced(p, path), left_out


def _lowest(bound_K: Floats, states: Ints, max_states: int) -> tuple[Ints, float]:
    """Return at most `max_states` of these states, in their order, and the lowest bound of those left out."""
    if len(states) <= max_states:
        return states, math.inf
    ranked = np.argsort(bound_K[states], kind="stable")
    return states[np.sort(ranked[:max_states])], float(bound_K[states[ranked[max_states]]])


def _advance(
    p: _Chain, i: int, states: tuple[Ints, Floats, Floats], ahead: tuple[Floats, float, float], below: float
) -> tuple[Ints, Floats, Floats, Ints]:
    """Return the states after bin i that may lead to less than `below`: used, carry, cost, and the state before."""
    from pliant.bins.planning.allocate_kernel import advance_carried, advance_served, bounds_of

    bin_ = (p.requests_I[i], p.capacity_I[i], p.least_I[i], p.latency_IB[i])
    cost_S, parent_S = advance_served(states, bin_, p.spare)
    after = np.flatnonzero(np.isfinite(cost_S))
    after = after[bounds_of(ahead, after, np.zeros(len(after)), cost_S[after]) < below]
    served = (after, np.zeros(len(after)), cost_S[after], parent_S[after])
    carried = _empty(advance_carried(states, bin_, ahead, below, _empty(0)))
    advance_carried(states, bin_, ahead, below, carried)
    used, carry, cost, parent = (np.concatenate(pair) for pair in zip(served, carried, strict=True))
    return used, carry, cost, parent


def _empty(room: int) -> tuple[Ints, Floats, Floats, Ints]:
    return np.empty(room, np.int64), np.empty(room), np.empty(room), np.empty(room, np.int64)


def _traced(p: _Chain, path: Sequence[tuple[Ints, Ints]]) -> list[int]:
    """Return the counts of all bins, traced back from the end."""
    counts, state = [], 0
    for extra, parent in reversed(path):
        counts.append(int(extra[state]))
        state = int(parent[state])
    return [int(least) + extra for least, extra in zip(p.least_I, reversed(counts), strict=True)]
