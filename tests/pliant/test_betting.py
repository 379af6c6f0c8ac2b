"""The e-process: fair by exact enumeration, equal to a plain reference, and as powerful as it says."""

from __future__ import annotations

import json
import math
from copy import deepcopy
from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.betting import SEEKING, STAKES, Evidence, Hypothesis
from pliant.errors import InputError
from pliant.state import read

OUTCOMES = st.lists(st.sampled_from((-1.0, -0.25, 0.0, 0.5, 1.0)), max_size=40)
MARGINS = st.sampled_from((-0.3, 0.0, 0.0025, 0.1))


def evidence_after(outcomes, margin=0.0025, horizon=25) -> Evidence:
    evidence = Evidence(Hypothesis(margin, horizon=horizon))
    for x in outcomes:
        evidence.add(x)
    return evidence


def enumerated(evidence: Evidence, probabilities: dict[float, float]) -> float:
    """Return the exact mean of the value after one more outcome, over the value before."""
    after = 0.0
    for x, probability in probabilities.items():
        copy = deepcopy(evidence)
        copy.add(x)
        after += probability * copy.value
    return after / evidence.value


@given(OUTCOMES, MARGINS, st.floats(0, 1), st.floats(0, 1))
def test_no_distribution_of_the_hypothesis_lets_the_evidence_grow_on_average(outcomes, margin, spread, shift):
    """The worst of two-point distributions have the margin as their mean, and all others are mixtures of them."""
    low = margin - spread * (margin + 1)
    high = margin + shift * (1 - margin)
    evidence = evidence_after(outcomes, margin)
    if high == low:
        probabilities = {margin: 1.0}
    else:
        above = (margin - low) / (high - low)
        probabilities = {low: 1 - above, high: above} if low < high else {margin: 1.0}
    assert enumerated(evidence, probabilities) == pytest.approx(1.0, abs=1e-9)


@given(OUTCOMES, MARGINS)
def test_the_fast_sums_equal_the_product_of_exact_factors(outcomes, margin):
    evidence = Evidence(Hypothesis(margin, horizon=25))
    wealth = [Fraction(1)] * (len(STAKES) + 1)
    for number, x in enumerate(outcomes, start=1):
        gain = Fraction(x) - Fraction(margin)
        stakes = (*(stake / (margin + 1) for stake in STAKES), evidence.seek())
        wealth = [each * (1 + Fraction(stake) * gain) for each, stake in zip(wealth, stakes, strict=True)]
        assert all(each > 0 for each in wealth[:-1])
        evidence.add(x)
        if number == 25:  # the horizon: the last bet's wealth goes to the others
            part = Fraction(SEEKING) / (1 - Fraction(SEEKING)) * wealth[-1]
            wealth = [*(each + part for each in wealth[:-1]), Fraction(0)]
    grid = sum(wealth[:-1], Fraction(0)) / len(STAKES)
    exact = float((1 - Fraction(SEEKING)) * grid + Fraction(SEEKING) * wealth[-1])
    assert evidence.value == pytest.approx(exact, rel=1e-9)
    assert evidence.outcomes == len(outcomes)


@pytest.mark.parametrize("x", [-1.1, 1.1, math.nan])
def test_an_outcome_outside_its_limits_is_refused_and_changes_nothing(x):
    evidence = evidence_after([1.0, 0.0])
    before = deepcopy(evidence)
    with pytest.raises(InputError):
        evidence.add(x)
    assert evidence == before


@pytest.mark.parametrize("figures", [{"margin": -1.0}, {"margin": 1.0}, {"low": 0.0}, {"target": 1.0}, {"horizon": -1}])
def test_a_hypothesis_that_no_bet_can_be_made_with_is_refused(figures):
    with pytest.raises(InputError):
        Hypothesis(**{"margin": 0.0, **figures})


@pytest.mark.parametrize(
    "change",
    [
        {"wealth": {"whole": [0.0], "without": {}}},
        {"wealth": {"whole": [0.0] * 6 + [math.nan], "without": {}}},
        {"squares": -1.0},
        {"outcomes": True},
        {"more": 1},
    ],
)
def test_a_damaged_state_is_refused(change):
    with pytest.raises(InputError):
        read(Evidence, asdict(evidence_after([1.0])) | change, "evidence")


def test_a_state_is_the_same_after_a_round_trip():
    evidence = evidence_after([1.0, -1.0])
    for group in (0, 1, 0):
        evidence.add(0.5, group)
    again = read(Evidence, json.loads(json.dumps(asdict(evidence))), "evidence")
    assert again == evidence and again.value == evidence.value


def crossings(rng: np.random.Generator, runs: int, lost: float, won: float) -> float:
    """Return the share of runs in which the evidence reaches 20 within 500 pairs."""
    crossed = 0
    for _ in range(runs):
        evidence = Evidence(Hypothesis(0.0, horizon=500))
        for x in rng.choice([1.0, -1.0, 0.0], 500, p=[lost, won, 1 - lost - won]):
            evidence.add(float(x))
            if evidence.value >= 20:
                crossed += 1
                break
    return crossed / runs


def test_three_points_show_within_500_pairs_and_equal_ones_rarely_look_worse():
    rng = np.random.default_rng(1)
    assert crossings(rng, 60, 0.03, 0.0) >= 0.95
    assert crossings(rng, 60, 0.015, 0.015) <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 60)


@pytest.mark.parametrize(("begun", "least", "most"), [(900, 0.9, 1.0), (1000, 0.0, 0.1)])
def test_wealth_that_is_paid_in_bit_by_bit_notices_what_begins_late_and_seldom_what_does_not(begun, least, most):
    rng, crossed = np.random.default_rng(2), 0
    for _ in range(40):
        evidence = Evidence.kept_back(Hypothesis(0.0, horizon=0))
        assert evidence.value == 1.0
        differences = rng.choice([1.0, -1.0, 0.0], 1000, p=[0.1, 0.1, 0.8])
        differences[begun:] = rng.choice([1.0, 0.0], 1000 - begun, p=[0.3, 0.7])
        for number, x in enumerate(differences):
            evidence.pay(1 / 1000)
            evidence.add(float(x), number % 3)
            crossed += evidence.value >= 20
            if evidence.value >= 20:
                break
    assert least <= crossed / 40 <= most
