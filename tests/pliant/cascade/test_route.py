"""Answers, confidences, what is overturned and the choice of a candidate follow definitions that are written out here."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.cascade.artifact import Candidate, Cascade, Gate
from pliant.cascade.route import (
    FEATURES,
    FORMER,
    answers,
    choose,
    combine,
    confidence,
    features,
    judge,
    number_of,
    overturned,
    overturned_alone,
    reroute_probability,
    same,
)
from pliant.errors import InputError
from tests.fixtures.cascade.scenarios import profiles


def probability_of_eq_4(con, c, k):
    if con <= c:
        return 1.0
    norm = (con - c) / (1 - c) - 1 / 2
    return 1 / (1 + math.exp(k * norm))


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(0, 100))
def test_the_published_probability_is_eq_4(con, c, k):
    assert reroute_probability(np.array([con]), c, k)[0] == pytest.approx(probability_of_eq_4(con, c, k))


def test_a_class_s_answer_is_the_softmax_of_its_logits_by_the_temperature():
    level = replace(profiles(1)[0], temperature=2.0)
    row = answers(level, 0.0, np.array([[2.0, 0.0, -4.0]], np.float32), np.array([5]))[0]
    powers = [math.exp(1), 1.0, math.exp(-2)]
    assert row == pytest.approx([power / sum(powers) for power in powers])


def test_a_regression_s_answer_is_its_value_and_the_chance_of_an_error_within_the_tolerance():
    level = replace(profiles(1)[0], spread=(0.0, 1.0, math.log(4.0), 0.0, 0.0, 0.0, -9.0, 9.0))  # deviation 2
    value, chance = answers(level, 2.0, np.array([[3.5]], np.float32), np.array([5]))[0]
    assert value == 3.5
    assert chance == pytest.approx(0.6826894921)  # one standard deviation either way
    assert confidence(np.array([[3.5, 0.25]]), True).tolist() == [0.25]


@given(st.floats(0, 1))
def test_an_answer_of_two_levels_is_their_weighted_mean(weight):
    before, after = np.array([[0.8, 0.2]]), np.array([[0.4, 0.6]])
    expected = [[weight * 0.4 + (1 - weight) * 0.8, weight * 0.6 + (1 - weight) * 0.2]]
    assert combine(Gate("always", weight=weight), before, after) == pytest.approx(np.array(expected))


@given(st.integers(2, 6), st.integers(0, 1000))
def test_features_are_those_named(classes, seed):
    rng = np.random.default_rng(seed)
    before, row = rng.dirichlet(np.ones(classes) / 2, 2)
    rates = rng.random(classes)
    first, second, third, *_ = [*sorted(row, reverse=True), 0.0]
    doubt = math.log(max(1 - first, 1e-6))
    expected = {
        "one": 1.0,
        "confidence": first,
        "log doubt": doubt,
        "margin": first - second,
        "log of second over third": math.log(max(second, 1e-9)) - math.log(max(third, 1e-9)),
        "entropy": -sum(p * math.log(p) for p in row if p > 0),
        "confidence x log doubt": first * doubt,
        "log length": math.log(7),
        "rate of the class": rates[row.argmax()],
        "its probability of the answer": before[row.argmax()],
        "whether it agrees": float(before.argmax() == row.argmax()),
        "its confidence": before.max(),
    }
    named = features([before[None], row[None]], np.array([7]), rates, False)[0]
    assert named == pytest.approx([expected[name] for name in (*FEATURES, *FORMER)], abs=1e-9)
    alone = features([row[None]], np.array([7]), rates, False)[0]
    assert alone == pytest.approx([expected[name] for name in FEATURES], abs=1e-9)


def test_levels_of_a_regression_agree_within_the_tolerance():
    near, far = np.array([[2.4, 0.7]]), np.array([[3.1, 0.7]])
    mine = np.array([[2.0, 0.9]])
    assert same(near, mine, True, 0.5).all() and not same(far, mine, True, 0.5).any()
    agrees = features([far, mine], np.array([3]), (), True, 0.5)[0, -2]
    assert agrees == 0.0 and features([near, mine], np.array([3]), (), True, 0.5)[0, -2] == 1.0


@given(st.integers(2, 6), st.integers(0, 1000), st.booleans(), st.integers(1, 3))
def test_one_text_is_routed_as_one_of_many(classes, seed, regressive, levels):
    rng = np.random.default_rng(seed)
    if regressive:
        answers = [np.column_stack([rng.normal(0, 1, 5), rng.random(5)]) for _ in range(levels)]
    else:
        answers = [rng.dirichlet(np.ones(classes) / 3, 5) for _ in range(levels)]
    length_R, rates = rng.integers(1, 60, 5), () if regressive else tuple(rng.random(classes))
    gate = Gate("overturn", weights=tuple(rng.normal(0, 1, len(FEATURES) + 3 * (levels - 1))), rates=rates)
    every_R = overturned(gate, features(answers, length_R, rates, regressive, 0.5))
    for row, expected in enumerate(every_R):
        alone = [each[row : row + 1] for each in answers]
        assert overturned_alone(gate, alone, int(length_R[row]), regressive, 0.5) == pytest.approx(expected, abs=1e-9)


def test_an_answer_that_is_likelier_overturned_than_the_threshold_goes_on():
    gate = Gate("overturn", threshold=0.25, weights=(0.0, 0.0, 1.0))  # the odds are the doubt
    answer_RK = np.array([[0.5, 0.5], [2 / 3, 1 / 3], [0.9, 0.1]])
    worth_R = judge(gate, [answer_RK], np.full(3, 5), np.zeros(3), False)
    assert worth_R[0] == pytest.approx(1 / 3)
    assert np.isnan(worth_R[2])
    assert np.isnan(judge(replace(gate, threshold=0.25 + 1e-9), [answer_RK], np.full(3, 5), np.zeros(3), False)[1])


def test_a_published_gate_tosses_with_eq_4():
    gate, answer = Gate("tabi", threshold=0.8, slope=10.0), np.array([[0.95, 0.05]])
    chance = probability_of_eq_4(0.95, 0.8, 10.0)
    assert judge(gate, [answer], np.array([5]), np.array([chance - 1e-9]), False)[0] == pytest.approx(0.05)
    assert np.isnan(judge(gate, [answer], np.array([5]), np.array([chance + 1e-9]), False)[0])


def cascade(*figures):
    """Return a cascade with a candidate for each (promised, seconds)."""
    candidates = tuple(Candidate(f"{i}", (0,), (), 0.9, p, s, (1.0,)) for i, (p, s) in enumerate(figures))
    return Cascade("mood", ("a", "b"), False, 0.0, "cpu", profiles(1), candidates, 0.9, 0.95, {}, "none")


OFFERS = cascade((0.90, 3.0), (0.85, 1.0), (0.95, 5.0), (0.90, 2.0))


@pytest.mark.parametrize(
    ("accuracy", "latency", "chosen"),
    [
        (None, None, 0),  # the default
        (0.9, None, 3),  # the cheapest that promises it
        (0.92, None, 2),
        (0.1, None, 1),
        (None, 2.5, 3),  # the most accurate within the time
        (None, 100.0, 2),
        (None, 1.0, 1),
        (0.9, 2.0, 3),
        (0.9, 100.0, 3),
    ],
)
def test_the_cheapest_that_meets_both_is_chosen(accuracy, latency, chosen):
    assert choose(OFFERS, accuracy, latency) == chosen


def test_a_candidate_goes_by_its_name_and_another_name_is_refused_with_those_there_are():
    assert [number_of(OFFERS, str(number)) for number in range(4)] == [0, 1, 2, 3]
    twice = replace(OFFERS, candidates=(OFFERS.candidates[1], *OFFERS.candidates[:2]))
    assert number_of(twice, "1") == 0, "the first of equal names"
    with pytest.raises(InputError, match=r"^candidate is 4, but must be one of 1, 0$"):
        number_of(twice, "4")
