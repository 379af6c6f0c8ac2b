"""Sticky assignment, paired and unpaired comparisons, and the latency that counts as late."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chi2

from pliant.errors import InputError
from pliant.rollout.config import position
from pliant.rollout.measures import LEAST_WINDOW, RENEWED, Comparison, Measure, Reference


def comparison(name="late", margin=0.02, **changes) -> Comparison:
    return Comparison.begun(Measure(name, margin, **changes), 20.0, 500, 0.05)


def test_a_block_compares_the_means_of_both_arms():
    late = comparison()
    for loss in (0.0, 1.0, 0.0, 0.0):
        late.add_outcome("champion", loss)
    assert late.evidence.outcomes == 0
    late.add_outcome("canary", 1.0)
    expected = comparison()
    expected.add(0.75)
    assert late.evidence == expected.evidence
    late.add_outcome("canary", 1.0)
    assert late.evidence.outcomes == 1, "a new block waits for the champion"


def test_both_arms_slow_at_once_are_no_evidence_and_a_slow_canary_is():
    rng = np.random.default_rng(0)
    together, alone = comparison(), comparison()
    for index in range(600):
        chance = 0.05 if index < 300 else 0.5
        for arm in ("champion", "canary"):
            together.add_outcome(arm, float(rng.random() < chance))
            alone.add_outcome(arm, float(rng.random() < (0.2 if arm == "canary" else 0.05)))
    assert together.evidence.value < 20 < alone.evidence.value


def test_what_must_be_proven_is_proven_by_good_outcomes_and_stays_so():
    proof = comparison("accuracy", 0.0025, prove=0.03)
    assert not proof.proven
    for _ in range(300):
        proof.add(0.0)
    assert proof.proven
    for _ in range(20):
        proof.add(1.0)
    assert proof.proven


@pytest.mark.parametrize(
    "figures",
    [
        {"name": "speed"},
        {"margin": -0.1},
        {"weight": -1.0},
        {"prove": 0.1},
        {"margin": math.nan},
    ],
)
def test_a_measure_that_cannot_be_tested_is_refused(figures):
    with pytest.raises(InputError):
        Measure(**{"name": "late", "margin": 0.1, **figures})


def test_late_is_beyond_the_quantile_of_recent_latencies_and_is_fixed_beforehand():
    reference = Reference()
    for index in range(LEAST_WINDOW - 1):
        reference.add(index / 1000)
    assert reference.seconds is None
    reference.add(9.0)
    assert reference.seconds == 0.121
    for _ in range(RENEWED - 1):
        reference.add(5.0)
    assert reference.seconds == 0.121
    reference.add(5.0)
    assert reference.seconds == 5.0


def test_a_key_keeps_the_position_that_it_had_in_every_process_and_version():
    assert position("tokens-7", "client-1") == 0.20001289642556108
    assert position("tokens-7", "") == 0.6467936988922319


def test_keys_are_spread_evenly():
    counts = np.bincount([int(20 * position("release", f"key-{key}")) for key in range(20_000)], minlength=20)
    assert len(counts) == 20
    assert np.sum((counts - 1000) ** 2 / 1000) < chi2.ppf(0.999, 19)
