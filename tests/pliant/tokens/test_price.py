"""The price of device time is the dual variable of the fluid linear programme, which a solver computes here."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pliant.tokens.price import hull, price

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


@given(kinds)
def test_a_hull_is_concave_and_above_every_gamma(drawn):
    for seconds, worth, _ in curves(drawn)[0]:
        steps = hull(seconds, worth)
        assert (steps.seconds_S > 0).all() and (steps.worth_S > 0).all()
        assert all(a >= b - 1e-9 for a, b in pairwise(steps.worth_S / steps.seconds_S))
        assert steps.worth_S.sum() == pytest.approx(worth.max())
        x, y = np.cumsum([0, *steps.seconds_S]), np.cumsum([0, *steps.worth_S])
        assert (np.interp(seconds, x, y) >= worth - 1e-9).all()


@given(kinds, st.floats(0, 24), st.floats(0, 24))
def test_more_devices_never_raise_the_price_and_more_requests_never_lower_it(drawn, capacity, more):
    _, demand = curves(drawn)
    assert price(demand, capacity + more) <= price(demand, capacity)
    assert price([(h, 2 * count) for h, count in demand], capacity) >= price(demand, capacity)


def test_time_is_free_while_everybody_can_have_the_best_gamma():
    curve = hull(np.array([1.0, 2.0]), np.array([0.5, 0.9]))
    assert price([(curve, 3)], 6.5) == price([(curve, 3)], 6.0) == 0.0
    assert price([(curve, 3)], 5.9) == pytest.approx(0.4)
    assert price([(curve, 3)], 2.9) == pytest.approx(0.5)
