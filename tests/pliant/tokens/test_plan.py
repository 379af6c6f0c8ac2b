"""The planner is exact: it agrees with plain loops over every choice there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.latency import LatencyTable
from pliant.tokens.artifact import RateRule
from pliant.tokens.plan import DROP, _frontier, plan, planned_batch, rate_rule

# Eighths and quarters: sums of them are exact, so plans can be compared without tolerance.
eighths = st.integers(1, 40).map(lambda n: n / 8)
shares = st.integers(0, 8).map(lambda n: n / 8)


@st.composite
def instances(draw, batches=5, gammas=4, size=3):
    """Batches of (deadlines, utilities [gamma][request]), seconds [gamma][n], a clock and a device count."""
    g = draw(st.integers(1, gammas))
    sizes = draw(st.lists(st.integers(1, size), min_size=0, max_size=batches))
    made = []
    for n in sizes:
        deadlines = draw(st.lists(eighths, min_size=n, max_size=n))
        values = [draw(st.lists(shares, min_size=n, max_size=n)) for _ in range(g)]
        made.append((deadlines, values))
    made.sort(key=lambda batch: min(batch[0]))
    seconds = [[0.0, *draw(st.lists(eighths, min_size=size, max_size=size))] for _ in range(g)]
    return made, seconds, draw(st.integers(0, 8)) / 8


def earned(instance, choices, clock=None, devices=1):
    """What these choices earn: each batch starts when the one before ends, a request counts if it ends in time."""
    batches, seconds, start = instance
    now = start if clock is None else clock
    total = 0.0
    for (deadlines, values), choice in zip(batches, choices, strict=True):
        if choice == DROP:
            continue
        end = now + seconds[choice][len(deadlines)]
        for deadline, value in zip(deadlines, values[choice], strict=True):
            if end <= deadline:
                total += value
        now += seconds[choice][len(deadlines)] / devices
    return total


def best_by_trying_all(instance, devices=1):
    batches, seconds, _ = instance
    options = [DROP, *range(len(seconds))]
    return max(earned(instance, choices, devices=devices) for choices in product(options, repeat=len(batches)))


def planned(instance, bucket=0.0, devices=1, clock=None, gammas=None):
    batches, seconds, start = instance
    allowed = range(len(seconds)) if gammas is None else gammas
    views = [planned_batch(np.array(d), np.array([v[g] for g in allowed])) for d, v in batches]
    table = np.array([seconds[g] for g in allowed])
    return plan(views, table, start if clock is None else clock, bucket, devices)


@settings(max_examples=150)
@given(instances(), st.sampled_from([1, 2]))
def test_a_plan_earns_as_much_as_the_best_of_all_choices(instance, devices):
    assert planned(instance, devices=devices).utility == best_by_trying_all(instance, devices)


@given(instances(), st.sampled_from([0.0, 0.01, 0.25]), st.sampled_from([1, 4]))
def test_a_plan_earns_what_it_claims(instance, bucket, devices):
    made = planned(instance, bucket, devices)
    assert len(made.choices) == len(instance[0])
    assert made.utility == earned(instance, made.choices, devices=devices)


@given(instances(), st.sampled_from([0.01, 0.05, 0.25]))
def test_a_bucketed_plan_loses_at_most_its_share_per_batch(instance, bucket):
    batches, _, _ = instance
    greatest = sum(max(sum(values) for values in v) for _, v in batches)
    assert planned(instance, bucket).utility >= best_by_trying_all(instance) - len(batches) * bucket * greatest


@given(instances())
def test_a_further_gamma_never_lowers_the_plan(instance):
    _, seconds, _ = instance
    fewer = planned(instance, gammas=range(max(1, len(seconds) - 1))).utility
    assert planned(instance).utility >= fewer


@given(instances(), eighths)
def test_a_later_start_never_raises_the_plan(instance, later):
    assert planned(instance, clock=instance[2] + later).utility <= planned(instance).utility


@given(instances())
def test_a_batch_that_is_chosen_earns_something(instance):
    """The scheduler takes the first chosen batch: it must not spend the device on nothing."""
    choices = planned(instance).choices
    for i, choice in enumerate(choices):
        if choice != DROP:
            assert earned(instance, choices) > earned(instance, [*choices[:i], DROP, *choices[i + 1 :]])


def test_a_request_that_ends_exactly_at_its_deadline_counts():
    batch = planned_batch(np.array([1.0]), np.array([[1.0]]))
    assert plan([batch], np.array([[0.0, 1.0]]), 0.0).utility == 1.0
    assert plan([batch], np.array([[0.0, 1.0]]), 1e-9).utility == 0.0


def test_the_order_of_requests_in_a_batch_does_not_matter():
    deadlines, values = np.array([3.0, 1.0, 2.0]), np.array([[0.3, 0.1, 0.2]])
    batch = planned_batch(deadlines, values)
    assert batch.deadlines.tolist() == [1.0, 2.0, 3.0]
    assert batch.earned_after[0] == pytest.approx([0.6, 0.5, 0.3, 0.0])


def test_the_published_programmes_flaw_is_not_there():
    """One pair per (batch, gamma) keeps the start that earns more and forgets the one that ends early enough for both."""
    first = planned_batch(np.array([9.0]), np.array([[1.0], [0.75]]))
    second = planned_batch(np.array([9.0] * 2), np.ones((2, 2)))
    third = planned_batch(np.array([9.0] * 3), np.ones((2, 3)))
    seconds = np.array([[0.0, 5.0, 1.0, 4.0], [0.0, 4.0, 9.0, 4.0]])
    made = plan([first, second, third], seconds, 0.0)
    assert made.choices[:2] == (1, 0)  # the best of the first two alone is (0, 0)
    assert made.utility == 5.75


@given(st.lists(st.tuples(eighths, shares), min_size=1, max_size=60), st.sampled_from([0.0, 0.125, 0.25]))
def test_no_state_is_kept_that_another_one_beats(states, step):
    clocks, gains = (np.array(values) for values in zip(*states, strict=True))
    kept = _frontier(clocks, gains, step)
    assert np.all(np.diff(clocks[kept]) >= 0)
    assert np.all(np.diff(gains[kept]) > 0)
    assert gains[kept[-1]] == gains.max()
    if step:
        assert len(kept) <= 1 / step + 2
    else:
        assert np.all(np.diff(clocks[kept]) > 0)
        for clock, gain in states:
            assert any(clocks[k] <= clock and gains[k] >= gain for k in kept)


def test_nothing_waiting_is_an_empty_plan():
    assert plan([], np.array([[0.0, 1.0]]), 0.0).choices == ()


# The rate rule


@st.composite
def profiles(draw):
    gammas = tuple(sorted(draw(st.sets(st.integers(-20, 8), min_size=1, max_size=6))))
    seconds = tuple(tuple(draw(st.floats(0.001, 1.0)) for _ in (1, 4)) for _ in gammas)
    accuracy = {gamma: draw(st.integers(1, 100)) / 100 for gamma in gammas}
    return LatencyTable(gammas, (1, 4), seconds), accuracy


def capacity(table, gamma, up_to, within):
    """Requests a second at the best batch that keeps the limit."""
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


def test_a_rate_on_a_threshold_belongs_to_the_gamma_above_it():
    rule = RateRule((10.0, 20.0), (4, 0, -5))
    assert [rule.gamma(rate) for rate in (0.0, 9.99, 10.0, 19.99, 20.0, 1e9)] == [4, 4, 0, 0, -5, -5]


def test_the_rule_leaves_out_gammas_without_an_accuracy():
    table = LatencyTable((-5, 0, 2), (1,), ((0.1,), (0.2,), (0.4,)))
    assert rate_rule(table, {0: 0.9}, 1, 10.0).gammas == (0,)


def test_a_utilisation_below_one_moves_every_threshold_down():
    table = LatencyTable((-5, 0), (1,), ((0.1,), (0.2,)))
    full = rate_rule(table, {-5: 0.5, 0: 0.9}, 1, 10.0)
    half = rate_rule(table, {-5: 0.5, 0: 0.9}, 1, 10.0, utilisation=0.5)
    assert full.gammas == half.gammas == (0, -5)
    assert full.below[0] == pytest.approx(2 * half.below[0]) == pytest.approx(9.0)
