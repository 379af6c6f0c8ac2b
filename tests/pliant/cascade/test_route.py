"""Answers, confidences, gains and the choice of a candidate follow their definitions, which are written out here."""

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
    answers,
    choose,
    combine,
    confidence,
    features,
    judge,
    number_of,
    reroute_probability,
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
    assert combine(Gate("gain", weight=weight), before, after) == pytest.approx(np.array(expected))


@given(st.integers(2, 6), st.integers(0, 1000))
def test_features_are_those_named(classes, seed):
    row = np.random.default_rng(seed).dirichlet(np.ones(classes) / 2)
    first, second, *rest = sorted(row, reverse=True)
    expected = {
        "one": 1.0,
        "confidence": first,
        "log doubt": math.log(max(1 - first, 1e-6)),
        "second": second,
        "entropy": -sum(p * math.log(p) for p in row if p > 0),
        "confidence x doubt": first * (1 - first),
        "rest": sum(rest),
    }
    assert features(row[None], False)[0] == pytest.approx([expected[name] for name in FEATURES], abs=1e-9)


def test_a_gain_above_the_threshold_goes_on_with_the_gain():
    gate = Gate("gain", threshold=0.25, weights=(1.0, -1.0, 0, 0, 0, 0, 0))
    gain_R = judge(gate, np.array([[0.5, 0.5], [0.75, 0.25], [0.9, 0.1]]), np.zeros(3), False)
    assert gain_R[0] == 0.5
    assert np.isnan(gain_R[1:]).all()  # 0.25 is not above 0.25


def test_a_published_gate_tosses_with_eq_4():
    gate, answer = Gate("tabi", threshold=0.8, slope=10.0), np.array([[0.95, 0.05]])
    chance = probability_of_eq_4(0.95, 0.8, 10.0)
    assert judge(gate, answer, np.array([chance - 1e-9]), False)[0] == pytest.approx(0.05)
    assert np.isnan(judge(gate, answer, np.array([chance + 1e-9]), False)[0])


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
