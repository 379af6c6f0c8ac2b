"""Bets never win on average while nothing has changed; bins, and accuracy estimated without labels."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.watch.betting import bands, bet_block, evidence, make_bets
from pliant.watch.binning import Binning, classes, coarse_bins, linear, logarithmic, merge, quantiles
from pliant.watch.reference import Reference, bounds
from pliant.watch.system import mean_confidence
from tests.pliant.watch import plain

PACE = 100.0


def reference(weights, ordered: bool, size: float = 500.0) -> Reference:
    shares = np.array(weights, float) / sum(weights)
    binning = (
        Binning(tuple(map(float, range(1, len(weights)))))
        if ordered
        else classes([str(i) for i in range(len(weights))])
    )
    return Reference(binning, tuple(shares.tolist()), size)


def bets_of(known: Reference, tolerance: float = 1.1, **more):
    band = bands(known, 1.0, tolerance, 0.001, 20)
    return make_bets(known, band, **more), band


weights = st.lists(st.integers(0, 20), min_size=2, max_size=6).filter(lambda each: sum(each) > 0)


def within(band, ordered: bool, number: int, rng) -> list[np.ndarray]:
    """Distributions [number] within the bands: random corners of those of the tails, kept where bins agree."""
    kept = []
    for _ in range(40):
        if ordered:
            low, high = band.tails
            pick = rng.integers(0, 3, number - 1)
            tails = np.where(pick == 0, low, np.where(pick == 1, high, (low + high) / 2))
            tails = np.concatenate([[1.0], np.minimum.accumulate(tails), [0.0]])
            shares = -np.diff(tails)
        else:
            shares = rng.uniform(*band.bins)
            shares = shares / shares.sum()
        if (shares >= band.bins[0] - 1e-12).all() and (shares <= band.bins[1] + 1e-12).all():
            kept.append(shares)
    return kept


@given(weights, st.booleans(), st.floats(1.0, 2.0), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_no_factor_has_a_mean_above_1_for_any_distribution_within_the_bands(numbers, ordered, tolerance, seed):
    known = reference(numbers, ordered)
    bets, band = bets_of(known, tolerance)
    centre = np.asarray(known.shares)
    for shares in [centre, *within(band, ordered, len(numbers), np.random.default_rng(seed))]:
        assert (shares @ np.exp(bets.log_factors) <= 1 + 1e-9).all()


def test_the_mean_over_all_blocks_of_three_is_at_most_the_wealth_before():
    known = reference([3, 5, 2], True)
    bets, _ = bets_of(known)
    start, mean = np.full(len(bets.items), 0.5) * bets.weights, 0.0
    for block in product(range(3), repeat=3):
        chance = float(np.prod([known.shares[bin] for bin in block]))
        wealth = bet_block(bets, start, np.bincount(block, minlength=3), 10.0, PACE)
        mean += chance * float(evidence(wealth, 13.0, PACE))
    assert mean <= float(evidence(start, 10.0, PACE)) + 1e-12


@given(weights, st.booleans(), st.lists(st.lists(st.integers(0, 5), max_size=12), max_size=8))
@settings(deadline=None, max_examples=30)
def test_the_fast_wealth_is_the_plain_one(numbers, ordered, blocks):
    known = reference(numbers, ordered)
    bets, _ = bets_of(known)
    blocks = [[bin % len(numbers) for bin in block] for block in blocks]
    wealth, seen, fast = np.zeros(len(bets.items)), 0, []
    for block in blocks:
        wealth = bet_block(bets, wealth, np.bincount(block, minlength=len(numbers)).astype(np.int64), seen, PACE)
        assert (wealth >= 0).all()
        seen += len(block)
        fast.append(float(evidence(wealth, seen, PACE)))
    slow = plain.evidence(bets.log_factors.tolist(), bets.weights.tolist(), blocks, PACE)
    assert fast == pytest.approx(slow, rel=1e-9)


def test_bounds_are_wrong_as_seldom_as_they_say():
    rng = np.random.default_rng(0)
    for probability in (0.02, 0.3):
        low, high = bounds(rng.binomial(200, probability, 4000) / 200, 200, 0.05)
        assert np.mean(low > probability) <= 0.05
        assert np.mean(high < probability) <= 0.05


@given(st.lists(st.floats(-10, 10), max_size=50))
def test_counting_many_values_is_counting_each(values):
    binning = linear(-3, 3, 7)
    each = [0] * 7
    for value in values:
        each[sum(edge <= value for edge in binning.edges)] += 1
    assert binning.counts(values).tolist() == each


def test_an_edge_belongs_to_the_bin_above_it_and_what_is_no_number_to_the_last():
    assert Binning((1.0, 2.0)).counts([0.9, 1.0, 2.0, math.nan]).tolist() == [1, 1, 2]


@given(st.lists(st.floats(0.1, 1000), min_size=1, max_size=200), st.integers(2, 12))
def test_merged_counts_are_those_of_the_coarse_bins(values, bins):
    fine = logarithmic(1, 500, 40)
    counts = fine.counts(values)
    coarse = quantiles(fine, counts, bins)
    assert 2 <= coarse.bins <= bins + 2
    assert merge(counts, coarse_bins(fine, coarse), coarse.bins).tolist() == coarse.counts(values).tolist()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Binning(),
        lambda: Binning((1.0,), ("a", "b")),
        lambda: Binning((1.0, 1.0)),
        lambda: Binning((math.nan,)),
        lambda: classes(["a", "a"]),
        lambda: classes(["a"]),
        lambda: classes([str(number) for number in range(257)]),
        lambda: logarithmic(0, 1),
        lambda: coarse_bins(linear(0, 1, 4), Binning((0.3,))),
    ],
)
def test_bins_that_make_no_sense_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()


def test_the_mean_of_calibrated_confidences_is_the_accuracy():
    rng = np.random.default_rng(0)
    confidences = rng.beta(4, 1, 20_000)
    right = rng.random(20_000) < confidences
    estimate = mean_confidence(np.histogram(confidences, 50, (0, 1))[0])
    assert estimate.accuracy == pytest.approx(right.mean(), abs=0.01)
    assert estimate.low < right.mean() < estimate.high


@given(st.lists(st.integers(0, 50), min_size=2, max_size=20))
def test_an_estimate_and_its_interval_are_shares_and_unknown_without_answers(block):
    estimate = mean_confidence(block)
    assert estimate.answers == sum(block)
    if not any(block):
        assert math.isnan(estimate.accuracy) and math.isnan(estimate.low)
    else:
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1
