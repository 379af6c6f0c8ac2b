"""Bets never win on average while nothing has changed; bins, and accuracy estimated without labels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from pliant.betting import reserve
from pliant.errors import InputError
from pliant.watch.betting import bet, course_factors, gross_bands, gross_factors, new_tracks
from pliant.watch.binning import Binning, classes, coarse_bins, linear, logarithmic, merge, quantiles
from pliant.watch.course import Course, distance, shares, tally
from pliant.watch.system import mean_confidence

SHARE = st.floats(0.001, 0.999)


@given(SHARE, st.lists(SHARE, min_size=1, max_size=30), st.booleans())
@settings(deadline=None)
def test_no_gross_factor_has_a_mean_above_1_for_any_block_shares_whose_mean_is_at_an_end_of_the_band(usual, drawn, up):
    bands = gross_bands(np.array([usual]))
    low, high = (float(np.clip(end[0], 0, 1)) for end in bands)
    at_most = np.array(drawn) * min(1.0, high / np.mean(drawn))  # any shares, of which the mean is within the band
    at_least = 1 - (1 - np.array(drawn)) * min(1.0, (1 - low) / (1 - np.mean(drawn)))
    factors = [gross_factors(np.array([each]), bands)[0, 0 if up else 1] for each in (at_most if up else at_least)]
    assert (np.exp(factors).mean(0) <= 1 + 1e-9).all()


def test_a_bet_on_the_course_wins_nothing_on_average_within_the_tolerance_and_counts_no_window_for_more_than_its_clip():
    scores = np.random.default_rng(0).normal(1.0, 1.0, 200_000)
    factors = np.exp(course_factors(scores, np.ones_like(scores)))
    assert (factors.mean(0) <= 1.05).all()
    assert course_factors(np.array([1e9]), np.array([0.1])).max() == pytest.approx(4.5)


@given(st.integers(0, 10_000))
def test_what_flows_into_the_bets_and_the_reserve_are_1_and_bets_lead_since_they_were_least(steps):
    assert 0 < reserve(steps + 1, 100.0) < reserve(steps, 100.0) <= 1
    tracks = new_tracks(2)
    for before, factors in ((0, [0.5, -1.0]), (10, [0.5, 1.0]), (20, [0.5, 1.0])):
        tracks = bet(tracks, np.array(factors), 0.25, before, np.array([3, 4]))
    grown = 0.125 * (np.exp(1.5) + np.exp(1.0) + np.exp(0.5))
    assert tracks.wealth[0] == pytest.approx(grown)
    assert tracks.since.tolist() == [0, 10] and tracks.hits.tolist() == [9, 8]


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 60))
def test_a_tally_has_the_probability_that_a_value_is_among_draws(draws, hits, others):
    answers = hits + others
    if answers >= draws:
        tallies = tally(np.array([hits]), answers, draws)
        assert tallies[1] == pytest.approx(1 - hypergeom(answers, hits, draws).pmf(0), abs=1e-9)
        assert (tallies[0], tallies[2], tallies[3]) == (hits, answers, 1)


def test_a_distance_counts_an_absent_rare_value_and_one_that_comes_in_a_row_for_little():
    usual = np.array([0.01, 0.5])
    absent, many = np.array([0, 50, 1000, 100.0]), np.array([20, 50, 100, 100.0])
    assert distance(absent, usual)[0] == pytest.approx(-0.01 / 0.0099)
    assert distance(many, usual)[0] < 0.19 / 0.0099 and shares(many)[1] == pytest.approx(0.5)


def days_of(course: Course, rng, days: int, repeats: int = 1, start: int = 0):
    """Return what windows of these days compare as: 300 answers in 5 minutes of two classes, each of which comes again."""
    compared = []
    for block in range(288 * start, 288 * (start + days)):
        hits = repeats * rng.binomial(300 // repeats, 0.3 + 0.1 * math.sin(block / 288 * 2 * math.pi))
        compared.append(course.add(tally(np.array([hits]), 300, 50), 300.0 * block, 1000, True))
    return [each for each in compared if each is not None]


@pytest.mark.parametrize("repeats", [1, 10])
def test_a_course_is_known_after_a_day_and_repeats_are_in_the_long_run_variance(repeats):
    course, rng = Course(np.array([1500]), 5000, 0.0), np.random.default_rng(0)
    assert days_of(course, rng, 1) == []
    compared = days_of(course, rng, 9, repeats, 1)
    assert len(compared) == pytest.approx(9 * 72, abs=9) and course.days[:, -1].all()
    assert np.abs(np.mean([each.deviations for each in compared[72:]], axis=0)).max() < 0.4
    assert 0.5 * repeats < course.long_run()[0] < 3 * repeats


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
