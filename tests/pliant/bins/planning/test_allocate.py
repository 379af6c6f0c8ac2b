"""The allocation agrees with an exhaustive search and with a solver of integer programmes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.bins.planning.allocate import Allocation, Demand, allocate, allocate_streams, least_counts, published_cost
from pliant.errors import InputError
from tests.fixtures.bins.allocate_reference import (
    all_streams_tried,
    all_tried,
    allowed,
    compositions,
    milp_of_flat_latency,
    milp_of_paths,
    milp_without_carry,
)

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


@settings(max_examples=300, deadline=None)
@given(chains, st.integers(1, 9))
def test_no_other_allocation_costs_less(demands, devices):
    is_best(demands, devices)


@pytest.mark.parametrize("curve", [(1.0,), (0.0, 1.0), (1.0, 1.5, 5.0), (1.0, 3.0, 3.2)])
def test_no_other_allocation_costs_less_on_a_grid_of_all_small_instances(curve):
    for requests in product((0.0, 0.5, 1.0, 2.5), repeat=3):
        for capacity in ((2.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 2.0, 0.5)):
            demands = [
                Demand(q, m, tuple((i + 1) * value for value in curve))
                for i, (q, m) in enumerate(zip(requests, capacity, strict=True))
            ]
            for devices in (1, 2, 3, 5):
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


def long_tailed(seed, runtimes, devices, utilisation):
    """Return demands like those of texts: most are short, and the longest take four times as long as the shortest."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.uniform(1.0, 4.0, runtimes)) * 5e-3
    capacity = np.floor(rng.uniform(0.03, 0.15) / seconds)
    share = np.sort(rng.dirichlet(np.full(runtimes, 0.5)))[::-1]
    requests = share * utilisation * devices / (share / capacity).sum()
    curve = np.arange(300) / 2 + 0.5
    return [
        Demand(float(q), float(m), tuple((s * curve).tolist()))
        for q, m, s in zip(requests, capacity, seconds, strict=True)
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("utilisation", [0.6, 0.85, 0.95])
def test_a_flow_over_all_states_that_can_be_reached_costs_as_much(seed, utilisation):
    demands = long_tailed(seed, 6, 24, utilisation)
    assert allocate(demands, 24).cost == pytest.approx(milp_of_paths(demands, 24), rel=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_an_integer_programme_costs_as_much_where_no_carry_can_arise(seed):
    rng = np.random.default_rng(seed)
    curve = np.sort(rng.uniform(0.1, 5.0, (10, 40)), axis=1)
    demands = [
        Demand(float(rng.integers(0, 4) * m), float(m), tuple(row.tolist()))
        for m, row in zip(rng.integers(1, 20, 10), curve, strict=True)
    ]
    devices = sum(least_counts(demands)) + int(rng.integers(0, 40))
    assert allocate(demands, devices).cost == pytest.approx(milp_without_carry(demands, devices), rel=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_an_integer_programme_with_carries_costs_as_much_where_latency_is_flat(seed):
    flat = [Demand(d.requests, d.capacity, d.latency[:1]) for d in long_tailed(seed, 8, 40, 0.9)]
    assert allocate(flat, 40).cost == pytest.approx(milp_of_flat_latency(flat, 40), rel=1e-5)


@settings(max_examples=100, deadline=None)
@given(chains, st.integers(1, 8), st.integers(1, 3), st.sampled_from([1.0, 1e3]))
def test_a_search_that_was_cut_short_owns_up_to_how_much_it_may_have_missed(demands, devices, width, work):
    allocation = allocate(demands, devices, [(width, work)])
    least, feasible = all_tried(demands, devices)
    assert allowed(demands, allocation.counts, feasible)
    assert allocation.cost * (1.0 - allocation.gap) <= least * (1 + 1e-11) <= allocation.cost * (1 + 2e-11)


@settings(max_examples=200, deadline=None)
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
    bound = bound_of(least_costs(requests, *args)[latest], step[latest], price[latest], spare, carry)
    rest = [replace(demands[latest], requests=demands[latest].requests + carry), *demands[latest + 1 :]]
    options = compositions(spare, len(rest))
    costs = [published_cost(rest, [int(n) for n in least[latest:] + np.array(extra)]) for extra in options]
    assert bound <= min(costs) * (1 + 1e-11) + 1e-15


@pytest.mark.parametrize("utilisation", [0.3, 0.7, 0.95])
def test_a_thousand_devices_are_proven_best_and_no_single_move_of_a_device_betters_them(utilisation):
    demands = long_tailed(3, 16, 1000, utilisation)
    allocation = allocate(demands, 1000)
    assert allocation.feasible and allocation.gap == 0.0 and sum(allocation.counts) == 1000
    for giver, taker in product(range(16), repeat=2):
        moved = list(allocation.counts)
        moved[giver] -= 1
        moved[taker] += 1
        assert not allowed(demands, moved) or published_cost(demands, moved) >= allocation.cost * (1 - 1e-12)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_the_frontier_keeps_exactly_the_states_that_no_other_one_betters(states):
    from pliant.bins.planning.allocate_kernel import undominated

    states = sorted(states)
    used, carry, cost = np.array(states, dtype=float).reshape(-1, 3).T.copy()
    kept = [state for state, keep in zip(states, undominated(used.astype(np.int64), carry, cost), strict=True) if keep]
    needless = {s for s in states if any(t != s and all(a <= b for a, b in zip(t, s, strict=True)) for t in states)}
    assert kept == sorted(set(states) - needless)


FLAT = Demand(0.0, 1.0, (0.0,))


@pytest.mark.parametrize(
    ("call", "field", "value"),
    [
        (lambda: Demand(-0.5, 1.0, (1.0,)), "requests", "-0.5"),
        (lambda: Demand(np.inf, 1.0, (1.0,)), "requests", "inf"),
        (lambda: Demand(1.0, 0.0, (1.0,)), "capacity", "0.0"),
        (lambda: Demand(1.0, np.inf, (1.0,)), "capacity", "inf"),
        (lambda: Demand(1.0, 1.0, ()), "latency", "()"),
        (lambda: Demand(1.0, 1.0, (2.0, 1.0)), "latency at 1", "1.0"),
        (lambda: Demand(1.0, 1.0, (-1.0,)), "latency at 0", "-1.0"),
        (lambda: Demand(1.0, 1.0, (np.inf,)), "latency at 0", "inf"),
        (lambda: allocate_streams([], 3), "streams", "[]"),
        (lambda: allocate_streams([[FLAT], []], 3), "streams", "[1, 0]"),
        (lambda: allocate_streams([[FLAT], [FLAT]], 1), "devices", "1"),
    ],
)
def test_what_is_no_demand_or_has_no_device_is_refused_by_name(call, field, value):
    with pytest.raises(InputError) as caught:
        call()
    assert (caught.value.field, str(caught.value.value)) == (field, value)


def test_the_least_demand_and_as_many_devices_as_streams_are_allowed():
    assert allocate_streams([[FLAT], [FLAT, FLAT]], 2) == (
        Allocation((1,), 0.0, True, 0.0),
        Allocation((0, 1), 0.0, True, 0.0),
    )
    assert Demand(3.0, 2.0, (2.0,)).latency_at(9.0) == 2.0


def test_an_allocation_by_hand_and_one_with_too_few_devices():
    demands = [Demand(4.0, 2.0, (1.0, 1.0, 2.0)), Demand(2.0, 1.0, (3.0,))]
    assert least_counts(demands) == [2, 2] and least_counts([FLAT, FLAT]) == [0, 1]
    assert allocate(demands, 4) == Allocation((2, 2), 4 * 2.0 + 2 * 3.0, True, 0.0)
    assert allocate(demands, 6) == Allocation((4, 2), 4 * 1.0 + 2 * 3.0, True, 0.0)
    assert allocate(demands, 3) == Allocation((2, 1), 14.0, False, 0.0)
    assert published_cost(demands, (1, 2)) == 2 * 2.0 + 4 * 3.0
