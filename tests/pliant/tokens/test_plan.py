"""The planner and the price of device time are exact: held against exhaustive search and a linear programme."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pliant.latency import LatencyTable
from pliant.tokens.adaptive import DROP, _frontier, hull, plan, planned_batch, price
from pliant.tokens.otas import rate_rule

# Eighths and quarters: sums of them are exact, so plans can be compared without tolerance.
eighths = st.integers(1, 40).map(lambda n: n / 8)
shares = st.integers(0, 8).map(lambda n: n / 8)
prices = st.integers(0, 8).map(lambda n: n / 4)


@st.composite
def instances(draw, batches=5, gammas=4, size=3, devices=1):
    """Batches of (deadlines, utilities [gamma][request]), seconds [gamma][n], and when each device becomes free."""
    g = draw(st.integers(1, gammas))
    sizes = draw(st.lists(st.integers(1, size), min_size=0, max_size=batches))
    batches_drawn = []
    for n in sizes:
        deadlines = draw(st.lists(eighths, min_size=n, max_size=n))
        values = [draw(st.lists(shares, min_size=n, max_size=n)) for _ in range(g)]
        batches_drawn.append((deadlines, values))
    batches_drawn.sort(key=lambda batch: min(batch[0]))
    seconds = [[0.0, *draw(st.lists(eighths, min_size=size, max_size=size))] for _ in range(g)]
    return batches_drawn, seconds, draw(st.lists(shares, min_size=devices, max_size=devices))


def recount(instance, choices, price=0.0):
    """Return what these choices earn less the price of their time; each batch starts on the device that is free first."""
    batches, seconds, clocks = instance
    free, total = list(clocks), 0.0
    for (deadlines, values), choice in zip(batches, choices, strict=True):
        if choice == DROP:
            continue
        device = free.index(min(free))
        free[device] += seconds[choice][len(deadlines)]
        total += sum(v for d, v in zip(deadlines, values[choice], strict=True) if free[device] <= d)
    return total - price * (sum(free) - sum(clocks))


def best_by_trying_all(instance, price=0.0):
    """Return the worth of the best choices, by exhaustive search."""
    batches, seconds, _ = instance
    options = [DROP, *range(len(seconds))]
    return max(recount(instance, choices, price) for choices in product(options, repeat=len(batches)))


def planned(instance, bucket=0.0, price=0.0, gammas=None):
    batches, seconds, clocks = instance
    allowed = range(len(seconds)) if gammas is None else gammas
    views = [planned_batch(np.array(d), np.array([v[g] for g in allowed])) for d, v in batches]
    return plan(views, np.array([seconds[g] for g in allowed]), clocks, bucket, price)


@settings(max_examples=200)
@given(instances(), prices)
def test_a_plan_is_worth_as_much_as_the_best_of_all_choices(instance, price):
    assert recount(instance, planned(instance, price=price).choices, price) == best_by_trying_all(instance, price)


@given(instances(), st.sampled_from([0.01, 0.05, 0.25]), prices)
def test_a_bucketed_plan_loses_at_most_its_share_of_the_best_per_batch(instance, bucket, price):
    allowed = len(instance[0]) * bucket * best_by_trying_all(instance)
    worth = recount(instance, planned(instance, bucket, price).choices, price)
    assert worth >= best_by_trying_all(instance, price) - allowed - 1e-9


def test_a_price_leaves_time_to_requests_that_have_not_come_yet():
    batch = planned_batch(np.array([9.0]), np.array([[0.75], [1.0]]))
    seconds = np.array([[0.0, 1.0], [0.0, 2.0]])
    assert [plan([batch], seconds, [0.0], price=p).choices for p in (0.0, 0.2, 0.5, 0.8)] == [(1,), (1,), (0,), (DROP,)]


@st.composite
def many_states(draw):
    """A rising staircase of (clock, utility), long enough to be thinned, and states around it."""
    stair = zip(*(np.cumsum(draw(st.lists(eighths, min_size=20, max_size=20))) for _ in "cu"), strict=True)
    around = draw(st.lists(st.tuples(eighths, eighths), max_size=20))
    return draw(st.permutations([*stair, *around]))


@given(many_states(), st.sampled_from([0.0, 0.15, 0.25, 0.3]))
def test_no_state_is_kept_that_another_one_beats(states, bucket):
    clocks, gains = (np.array(values) for values in zip(*states, strict=True))
    kept = _frontier(clocks, gains, bucket)
    assert np.all(np.diff(clocks[kept]) > 0)
    assert np.all(np.diff(gains[kept]) > 0)
    assert gains[kept[-1]] == gains.max()
    assert not bucket or len(kept) <= 2 / bucket
    for clock, gain in states:
        assert any(clocks[k] <= clock and gains[k] >= gain - bucket * gains.max() for k in kept)


# The rate rule


@st.composite
def profiles(draw):
    gammas = tuple(sorted(draw(st.sets(st.integers(-20, 8), min_size=1, max_size=6))))
    seconds = tuple(tuple(draw(st.floats(0.001, 1.0)) for _ in (1, 4)) for _ in gammas)
    accuracy = {gamma: draw(st.integers(1, 100)) / 100 for gamma in gammas}
    return LatencyTable(gammas, (1, 4), seconds), accuracy


def capacity(table, gamma, up_to, within):
    """Return the requests a second of the best batch that ends within the limit."""
    rates = [n / table.at(gamma, n) for n in range(1, up_to + 1) if table.at(gamma, n) <= within]
    return max(rates) if rates else 1 / table.at(gamma, 1)


@given(profiles(), st.floats(0.1, 5000.0), st.sampled_from([0.05, 10.0]))
def test_the_rule_earns_as_much_as_the_best_gamma_at_any_rate(profile, rate, within):
    table, accuracy = profile
    gain = {g: min(rate, capacity(table, g, 4, within)) * accuracy[g] for g in table.settings}
    chosen = rate_rule(table, accuracy, 4, within).gamma(rate)
    assert gain[chosen] == pytest.approx(max(gain.values()), rel=1e-9)


sixteenths = st.integers(1, 32).map(lambda n: n / 16)
kinds = st.lists(
    st.tuples(
        st.lists(st.tuples(sixteenths, st.integers(0, 16).map(lambda n: n / 16)), min_size=1, max_size=5),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=4,
)


def curves(drawn):
    """Return (seconds [G], worth [G], count) of each kind, and their demand."""
    kinds_drawn = [(np.array([s for s, _ in c]), np.array([w for _, w in c]), float(count)) for c, count in drawn]
    return kinds_drawn, [(hull(seconds, worth), count) for seconds, worth, count in kinds_drawn]


def optimum(kinds_drawn, capacity: float) -> float:
    """Return the most utility of any mixture of (kind, gamma), by a linear programme over how many take each gamma."""
    cost = np.concatenate([worth for _, worth, _ in kinds_drawn])
    rows = [np.concatenate([seconds for seconds, _, _ in kinds_drawn])]
    for i in range(len(kinds_drawn)):
        rows.append(np.concatenate([np.full(len(s), float(i == j)) for j, (s, _, _) in enumerate(kinds_drawn)]))
    solution = linprog(
        -cost, A_ub=np.array(rows), b_ub=[capacity, *(count for *_, count in kinds_drawn)], method="highs"
    )
    return -float(solution.fun)


@settings(max_examples=150)
@given(kinds, st.integers(0, 96).map(lambda n: n / 4))
def test_the_price_is_what_another_second_would_earn_in_the_fluid_optimum(drawn, capacity):
    """It lies between what a little more capacity earns and what a little less costs: at a corner they differ."""
    kinds_drawn, demand = curves(drawn)
    step = 1e-4
    here = optimum(kinds_drawn, capacity)
    more = (optimum(kinds_drawn, capacity + step) - here) / step
    margin = price(demand, capacity)
    assert margin >= more - 1e-6
    if capacity >= step:
        assert margin <= (here - optimum(kinds_drawn, capacity - step)) / step + 1e-6


@settings(max_examples=150)
@given(kinds, st.integers(1, 96).map(lambda n: n / 4))
def test_no_mixture_earns_more_than_the_price_allows(drawn, capacity):
    """The dual: price x capacity plus what every request nets at its best gamma is the optimum."""
    kinds_drawn, demand = curves(drawn)
    margin = price(demand, capacity)
    net = sum(count * max(0.0, float((worth - margin * seconds).max())) for seconds, worth, count in kinds_drawn)
    assert margin * capacity + net == pytest.approx(optimum(kinds_drawn, capacity), abs=1e-6)


def test_time_is_free_while_everybody_can_have_the_best_gamma():
    curve = hull(np.array([1.0, 2.0]), np.array([0.5, 0.9]))
    assert price([(curve, 3)], 6.5) == price([(curve, 3)], 6.0) == 0.0
    assert price([(curve, 3)], 5.9) == pytest.approx(0.4)
    assert price([(curve, 3)], 2.9) == pytest.approx(0.5)
