"""The allocation agrees with an exhaustive search and with a solver of integer programmes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.planning.allocate import Allocation, Demand, allocate, allocate_streams, least_counts, published_cost
from pliant.errors import InputError


def compositions(devices: int, runtimes: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to give `devices` to this many runtimes."""
    if runtimes == 1:
        yield (devices,)
        return
    for first in range(devices + 1):
        for rest in compositions(devices - first, runtimes - 1):
            yield (first, *rest)


def allowed(demands: Sequence[Demand], counts: Sequence[int], bounded: bool = True) -> bool:
    """Return whether counts meet N_I >= 1 and, if `bounded`, N_i >= floor(Q_i / M_i)."""
    at_least = [math.floor(d.requests / d.capacity) if bounded else 0 for d in demands]
    return counts[-1] >= 1 and all(n >= bound for n, bound in zip(counts, at_least, strict=True))


def all_tried(demands: Sequence[Demand], devices: int) -> tuple[float, bool]:
    """Return the least cost of all allocations, and whether it is under the bounds (otherwise: without them)."""
    for bounded in (True, False):
        tried = (n for n in compositions(devices, len(demands)) if allowed(demands, n, bounded))
        if costs := [published_cost(demands, counts) for counts in tried]:
            return min(costs), bounded
    raise InputError("devices", devices, "at least 1")


def all_streams_tried(streams: Sequence[Sequence[Demand]], devices: int) -> tuple[float, bool]:
    """Return the same for several streams: the bounds hold for all of them or for none."""
    sizes = [len(stream) for stream in streams]
    ends = np.cumsum([0, *sizes])
    for bounded in (True, False):
        costs = []
        for counts in compositions(devices, sum(sizes)):
            split = [counts[a:b] for a, b in pairwise(ends)]
            if all(allowed(s, n, bounded) for s, n in zip(streams, split, strict=True)):
                costs.append(sum(published_cost(s, n) for s, n in zip(streams, split, strict=True)))
        if costs:
            return min(costs), bounded
    raise InputError("devices", devices, f"at least {len(streams)}")


pytest.importorskip("numba", reason="the allocation's inner loops are compiled by numba")


def is_best(demands, devices):
    """Assert that the allocation meets its bounds and costs the least, whether feasible or not."""
    allocation = allocate(demands, devices)
    least, feasible = all_tried(demands, devices)
    assert sum(allocation.counts) == devices and allowed(demands, allocation.counts, feasible)
    assert allocation.feasible == feasible and allocation.gap == 0.0
    assert allocation.cost == published_cost(demands, allocation.counts) == pytest.approx(least, rel=1e-11, abs=1e-15)


whole = st.integers(0, 12).map(float)
amounts = st.one_of(whole, st.floats(0.0, 12.0))
capacities = st.one_of(st.integers(1, 5).map(float), st.floats(0.3, 5.0))


@st.composite
def curves(draw):
    rises = draw(st.lists(st.one_of(st.just(0.0), st.floats(0.0, 3.0)), min_size=1, max_size=7))
    return tuple(float(value) for value in np.cumsum(rises))


some_demands = st.builds(Demand, amounts, capacities, curves())
chains = st.lists(some_demands, min_size=1, max_size=5)


@settings(max_examples=150, deadline=None)
@given(chains, st.integers(1, 9))
def test_no_other_allocation_costs_less(demands, devices):
    is_best(demands, devices)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(some_demands, min_size=1, max_size=2), min_size=1, max_size=3), st.integers(3, 7))
def test_no_other_division_among_streams_costs_less(streams, devices):
    allocations = allocate_streams(streams, devices)
    least, feasible = all_streams_tried(streams, devices)
    assert sum(sum(allocation.counts) for allocation in allocations) == devices
    for stream, allocation in zip(streams, allocations, strict=True):
        assert (
            allowed(stream, allocation.counts, feasible) and allocation.feasible == feasible and allocation.gap == 0.0
        )
    assert sum(allocation.cost for allocation in allocations) == pytest.approx(least, rel=1e-11, abs=1e-15)


@settings(max_examples=100, deadline=None)
@given(chains, st.integers(1, 8), st.integers(1, 3), st.sampled_from([1.0, 1e3]))
def test_a_search_that_was_cut_short_owns_up_to_how_much_it_may_have_missed(demands, devices, width, work):
    allocation = allocate(demands, devices, [(width, work)])
    least, feasible = all_tried(demands, devices)
    assert allowed(demands, allocation.counts, feasible)
    assert allocation.cost * (1.0 - allocation.gap) <= least * (1 + 1e-11) <= allocation.cost * (1 + 2e-11)


@settings(max_examples=100, deadline=None)
@given(chains, st.integers(0, 5), st.integers(1, 4), st.floats(0.0, 20.0), st.floats(1.0, 20.0))
def test_bounds_are_never_above_what_is_still_to_pay(demands, spare, levels, carry, most):
    from pliant.bins.planning.allocate_kernel import bound_of, least_costs

    latest = min(max(len(demands) - 2, 0), 1)  # the bin into which something is carried
    count, capacity = len(demands), [*(d.capacity for d in demands[:-1]), np.inf]
    price = [min(d.latency[0] for d in demands[i:]) for i in range(count)]
    step = np.array([0.0, *[most / levels] * (count - 1), 0.0])
    least = np.array(least_counts(demands))
    table = np.array([[d.latency_at(b) for b in range(9)] for d in demands])
    requests = np.array([d.requests for d in demands])
    args = (np.array(capacity), least, table, np.array([*price, 0.0]), step, levels, spare)
    bound = bound_of((least_costs(requests, *args)[latest], step[latest], price[latest]), spare, carry)
    rest = [replace(demands[latest], requests=demands[latest].requests + carry), *demands[latest + 1 :]]
    options = compositions(spare, len(rest))
    costs = [published_cost(rest, [int(n) for n in least[latest:] + np.array(extra)]) for extra in options]
    assert bound <= min(costs) * (1 + 1e-11) + 1e-15


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_the_frontier_keeps_exactly_the_states_that_no_other_one_betters(states):
    from pliant.bins.planning.allocate_kernel import undominated

    states = sorted(states)
    used, carry, cost = np.array(states, dtype=float).reshape(-1, 3).T.copy()
    kept = [state for state, keep in zip(states, undominated(used.astype(np.int64), carry, cost), strict=True) if keep]
    needless = {s for s in states if any(t != s and all(a <= b for a, b in zip(t, s, strict=True)) for t in states)}
    assert kept == sorted(set(states) - needless)


FLAT = Demand(0.0, 1.0, (0.0,))


def test_an_allocation_by_hand_and_one_with_too_few_devices():
    demands = [Demand(4.0, 2.0, (1.0, 1.0, 2.0)), Demand(2.0, 1.0, (3.0,))]
    assert least_counts(demands) == [2, 2] and least_counts([FLAT, FLAT]) == [0, 1]
    assert allocate(demands, 4) == Allocation((2, 2), 4 * 2.0 + 2 * 3.0, True, 0.0)
    assert allocate(demands, 6) == Allocation((4, 2), 4 * 1.0 + 2 * 3.0, True, 0.0)
    assert allocate(demands, 3) == Allocation((2, 1), 14.0, False, 0.0)
    assert published_cost(demands, (1, 2)) == 2 * 2.0 + 4 * 3.0
