"""The published programme again, slowly: every allocation tried, and three formulations for a solver of integer programmes.

The programme as such is not linear: L(C / N) C is neither linear in C nor in N, and C is a minimum. It is linear

- where no carry can arise (`milp_without_carry`): one binary for each runtime and number of devices;
- where latency does not depend on the backlog (`milp_of_flat_latency`): cost is linear in C, and one binary a runtime
  says whether it is full; carries included;
- always, over paths (`milp_of_paths`): one variable for each way from (bin, devices used, carry) to the next such state
  that can be reached. All carries are written out, so it grows fast; but it knows no dominance and no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from pliant.bins.planning.allocate import Demand, least_counts, published_cost
from pliant.errors import InputError, SchedulerError

State = tuple[int, int, float]  # bin, devices used, carry


def compositions(devices: int, runtimes: int) -> Iterator[tuple[int, ...]]:
    """All ways to give `devices` to so many runtimes."""
    if runtimes == 1:
        yield (devices,)
        return
    for first in range(devices + 1):
        for rest in compositions(devices - first, runtimes - 1):
            yield (first, *rest)


def allowed(demands: Sequence[Demand], counts: Sequence[int], bounded: bool = True) -> bool:
    """Whether counts hold N_I >= 1 and, if `bounded`, N_i >= floor(Q_i / M_i)."""
    at_least = [math.floor(d.requests / d.capacity) if bounded else 0 for d in demands]
    return counts[-1] >= 1 and all(n >= bound for n, bound in zip(counts, at_least, strict=True))


def all_tried(demands: Sequence[Demand], devices: int) -> tuple[float, bool]:
    """Least cost by trying every allocation, and whether one is allowed with the bounds (else: least without them)."""
    for bounded in (True, False):
        tried = (n for n in compositions(devices, len(demands)) if allowed(demands, n, bounded))
        if costs := [published_cost(demands, counts) for counts in tried]:
            return min(costs), bounded
    raise InputError("devices", devices, "at least 1")


def all_streams_tried(streams: Sequence[Sequence[Demand]], devices: int) -> tuple[float, bool]:
    """The same for several streams: bounds hold for all of them or for none."""
    sizes = [len(stream) for stream in streams]
    ends = np.cumsum([0, *sizes])
    for bounded in (True, False):
        costs = []
        for counts in compositions(devices, sum(sizes)):
            parts = [counts[a:b] for a, b in pairwise(ends)]
            if all(allowed(s, n, bounded) for s, n in zip(streams, parts, strict=True)):
                costs.append(sum(published_cost(s, n) for s, n in zip(streams, parts, strict=True)))
        if costs:
            return min(costs), bounded
    raise InputError("devices", devices, f"at least {len(streams)}")


def milp_without_carry(demands: Sequence[Demand], devices: int) -> float:
    """Least cost where every Q_i (but the last) is a whole multiple of M_i, so that the bounds leave no carry."""
    for i, demand in enumerate(demands[:-1]):
        if demand.requests % demand.capacity:
            raise InputError(f"requests of runtime {i}", demand.requests, f"a multiple of {demand.capacity}")
    options = [
        (i, n, demand.latency_at(demand.requests / n) * demand.requests if n else 0.0)
        for i, (demand, least) in enumerate(zip(demands, least_counts(demands), strict=True))
        for n in range(least, devices + 1)
    ]
    one_each = np.array([[option[0] == i for option in options] for i in range(len(demands))], dtype=float)
    used = np.array([[option[1] for option in options]], dtype=float)
    matrix, right = np.vstack([one_each, used]), np.array([*np.ones(len(demands)), devices])
    return _solved(np.array([option[2] for option in options]), matrix, right, right, Bounds(0, 1))


def milp_of_flat_latency(demands: Sequence[Demand], devices: int) -> float:
    """Least cost where each L is one value. Variables a runtime: N, C, R and whether it is full."""
    if any(len(demand.latency) > 1 for demand in demands):
        raise InputError("latency", "a curve", "one value for every backlog")
    count, most = len(demands), sum(demand.requests for demand in demands)
    n, c, r, full = np.split(np.eye(4 * count), 4)  # rows pick one variable
    q, m = np.array([d.requests for d in demands]), np.array([d.capacity for d in demands])
    before = np.vstack([np.zeros(4 * count), r[:-1]])
    big = most + devices * m.max()
    rows: list[tuple[Any, float, float]] = [(n.sum(axis=0), devices, devices), (r[-1], 0, 0)]  # the last one serves all
    rows += [(r[i] + c[i] - before[i], q[i], q[i]) for i in range(count)]
    for i in range(count - 1):
        rows.append((c[i] - m[i] * n[i], -np.inf, 0))
        rows.append((c[i] - m[i] * n[i] - big * full[i], -big, np.inf))  # full: C = N M
        rows.append((r[i] - big * full[i], -np.inf, 0))  # else: no carry
    lower = np.concatenate([least_counts(demands), np.zeros(3 * count)])
    upper = np.concatenate([np.full(count, devices), np.full(2 * count, most), np.ones(count)])
    whole = np.repeat([1, 0, 0, 1], count)
    cost = sum(d.latency[0] * row for d, row in zip(demands, c, strict=True))
    matrix, low, high = (np.array(part, dtype=float) for part in zip(*rows, strict=True))
    return _solved(np.asarray(cost), matrix, low, high, Bounds(lower, upper), whole)


def milp_of_paths(demands: Sequence[Demand], devices: int) -> float:
    """Least cost of a path through all states that can be reached, as a flow of 1 with whole variables."""
    arcs = list(_arcs(demands, devices))
    end: State = (len(demands), devices, 0.0)
    rows = {state: row for row, state in enumerate(dict.fromkeys(s for arc in arcs for s in arc[:2]))}
    flows = [(rows[s], j, sign) for j, arc in enumerate(arcs) for s, sign in zip(arc[:2], (-1.0, 1.0), strict=True)]
    row, column, sign = zip(*flows, strict=True)
    right = np.zeros(len(rows))
    right[rows[0, 0, 0.0]], right[rows[end]] = -1.0, 1.0
    matrix = coo_array((sign, (row, column)), shape=(len(rows), len(arcs))).tocsr()
    return _solved(np.array([arc[2] for arc in arcs]), matrix, right, right, Bounds(0, 1))


def _arcs(demands: Sequence[Demand], devices: int) -> Iterator[tuple[State, State, float]]:
    """(from, to, cost) of every choice in every state that can be reached; in the end all devices are used."""
    least, states = least_counts(demands), {(0, 0, 0.0)}
    for i, demand in enumerate(demands):
        last, after = i == len(demands) - 1, set()
        for state in sorted(states):
            _, used, carry = state
            for count in range(devices - used if last else least[i], devices - used + 1):
                load = carry + demand.requests
                if count >= least[i]:
                    served = load if last else min(load, count * demand.capacity)
                    to = (i + 1, used + count, load - served)
                    after.add(to)
                    yield state, to, demand.latency_at(served / count) * served if served else 0.0
        states = after


def _solved(
    cost: np.ndarray, matrix: object, low: np.ndarray, high: np.ndarray, bounds: Bounds, whole: np.ndarray | None = None
) -> float:
    integrality = np.ones(len(cost)) if whole is None else whole
    options = {"mip_rel_gap": 0.0}
    found = milp(
        cost, constraints=LinearConstraint(matrix, low, high), bounds=bounds, integrality=integrality, options=options
    )
    if not found.success:
        raise SchedulerError(f"the solver found no solution: {found.message}")
    return float(found.fun)
