"""On one device the planner is exact: it earns what an exhaustive search over all choices earns."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.latency import LatencyTable
from pliant.tokens.plan import DROP, _frontier, plan, planned_batch, rate_rule

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


@given(instances(batches=4, devices=2), prices)
def test_on_two_devices_a_plan_is_worth_no_more_than_the_best_of_all_choices(instance, price):
    assert recount(instance, planned(instance, price=price).choices, price) <= best_by_trying_all(instance, price)


@given(st.integers(1, 4).flatmap(lambda w: instances(devices=w)), st.sampled_from([0.0, 0.01, 0.25]), prices)
def test_a_plan_earns_what_it_claims(instance, bucket, price):
    planned_once = planned(instance, bucket, price)
    assert len(planned_once.choices) == len(instance[0])
    assert planned_once.utility == recount(instance, planned_once.choices)


@given(instances(), st.sampled_from([0.01, 0.05, 0.25]), prices)
def test_a_bucketed_plan_loses_at_most_its_share_of_the_best_per_batch(instance, bucket, price):
    allowed = len(instance[0]) * bucket * best_by_trying_all(instance)
    worth = recount(instance, planned(instance, bucket, price).choices, price)
    assert worth >= best_by_trying_all(instance, price) - allowed - 1e-9


@given(instances(), prices)
def test_a_batch_that_is_chosen_is_worth_its_time(instance, price):
    """The scheduler launches the first batch that is chosen, so it must not occupy the device for nothing."""
    choices = planned(instance, price=price).choices
    for i, choice in enumerate(choices):
        if choice != DROP:
            without = recount(instance, [*choices[:i], DROP, *choices[i + 1 :]], price)
            assert recount(instance, choices, price) > without


def test_a_price_leaves_time_to_requests_that_have_not_come_yet():
    batch = planned_batch(np.array([9.0]), np.array([[0.75], [1.0]]))
    seconds = np.array([[0.0, 1.0], [0.0, 2.0]])
    assert [plan([batch], seconds, [0.0], price=p).choices for p in (0.0, 0.2, 0.5, 0.8)] == [(1,), (1,), (0,), (DROP,)]


def test_the_published_programmes_flaw_is_not_there():
    """One state per (batch, gamma) would discard the start that leaves time for the third batch."""
    first = planned_batch(np.array([9.0]), np.array([[1.0], [0.75]]))
    second = planned_batch(np.array([9.0] * 2), np.ones((2, 2)))
    third = planned_batch(np.array([9.0] * 3), np.ones((2, 3)))
    seconds = np.array([[0.0, 5.0, 1.0, 4.0], [0.0, 4.0, 9.0, 4.0]])
    found_plan = plan([first, second, third], seconds, [0.0])
    assert found_plan.choices[:2] == (1, 0)  # the best of the first two alone is (0, 0)
    assert found_plan.utility == 5.75


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


@given(profiles())
def test_the_rules_thresholds_ascend_and_its_ends_are_the_extremes(profile):
    table, accuracy = profile
    rule = rate_rule(table, accuracy, 4, 10.0)
    assert list(rule.below) == sorted(set(rule.below))
    assert len(rule.gammas) == len(rule.below) + 1
    assert all(a != b for a, b in zip(rule.gammas, rule.gammas[1:], strict=False))
    assert accuracy[rule.gamma(0.0)] == max(accuracy.values())
    earns = {g: capacity(table, g, 4, 10.0) * accuracy[g] for g in table.settings}
    assert earns[rule.gamma(1e12)] == pytest.approx(max(earns.values()))


def test_a_utilisation_below_one_moves_every_threshold_down():
    table = LatencyTable((-5, 0), (1,), ((0.1,), (0.2,)))
    full = rate_rule(table, {-5: 0.5, 0: 0.9}, 1, 10.0)
    half = rate_rule(table, {-5: 0.5, 0: 0.9}, 1, 10.0, utilisation=0.5)
    assert full.gammas == half.gammas == (0, -5)
    assert full.below[0] == pytest.approx(2 * half.below[0]) == pytest.approx(9.0)


def test_a_rule_of_capacities_and_crossings_by_hand():
    """At -5 10 a second at 0.5, at 0 5 a second at 0.8, at 2 2 at 0.9: each leads until the next one earns as much."""
    table = LatencyTable((-5, 0, 2), (1, 2), ((0.1, 0.2), (0.2, 0.4), (0.5, 1.0)))
    accuracy = {-5: 0.5, 0: 0.8, 2: 0.9}
    rule = rate_rule(table, accuracy, 2, 10.0)
    assert rule.gammas == (2, 0, -5)
    assert rule.below == pytest.approx((2 * 0.9 / 0.8, 5 * 0.8 / 0.5))


def test_of_gammas_that_earn_the_same_the_faster_one_leads():
    table = LatencyTable((-5, 0), (1,), ((0.1,), (0.2,)))
    assert rate_rule(table, {-5: 0.8, 0: 0.8}, 1, 10.0).gammas == (-5,)


@pytest.mark.parametrize(("within", "capacity"), [(0.2, 1 / 0.16), (0.25, 2 / 0.25)])
def test_only_batches_that_end_in_time_count_for_the_capacity(within, capacity):
    table = LatencyTable((-5, 0), (1, 2), ((0.1, 0.11), (0.16, 0.25)))
    rule = rate_rule(table, {-5: 0.5, 0: 0.8}, 2, within)
    assert rule.gammas == (0, -5)
    assert rule.below == (pytest.approx(capacity * 0.8 / 0.5),)
