"""Bets never win on average while nothing has changed, and the fast wealth is the plain one's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.watch.betting import bands, bet_block, evidence, make_bets, reserve
from pliant.watch.binning import Binning, classes
from pliant.watch.reference import Reference, bounds
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


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0.0001, 0.2))
def test_bounds_hold_the_share_and_narrow_with_its_size(hits, more, alpha):
    share = np.array([hits / (hits + more)])
    low, high = bounds(share, hits + more, alpha)
    nearer = bounds(share, 10 * (hits + more), alpha)
    assert 0 <= low <= nearer[0] <= share <= nearer[1] <= high <= 1


def test_bounds_are_wrong_as_seldom_as_they_say():
    rng = np.random.default_rng(0)
    for probability in (0.02, 0.3):
        low, high = bounds(rng.binomial(200, probability, 4000) / 200, 200, 0.05)
        assert np.mean(low > probability) <= 0.05
        assert np.mean(high < probability) <= 0.05


@given(st.floats(0, 1e9), st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_reserve_flows_out_for_ever_and_never_more_than_there_is(observations, more, pace):
    assert 1 >= reserve(observations, pace) >= reserve(observations + more, pace) > 0
