"""The Twitter traces: what they are made of, and that they have the rate, the bursts and the drift that they tell."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bins import traces
from benchmarks.bins.traces import (
    FAST,
    FAST_SECONDS,
    LONGEST,
    PEAK,
    QUANTILES,
    SLOW,
    SLOW_SECONDS,
    Trace,
    bursty,
    missing,
    stable,
)
from pliant.errors import InputError

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def dispersion(trace: Trace, seconds: float) -> float:
    """Return the variance over the mean of the requests in stretches of `seconds` (a Poisson process: 1)."""
    counts = np.bincount((trace.times / seconds).astype(np.int64))
    return float(counts.var() / counts.mean())


def drift(trace: Trace, seconds: float = 60.0) -> float:
    """Return how far the mean of log-length moves: its largest minus its least over stretches of `seconds`."""
    at = (trace.times / seconds).astype(np.int64)
    counts = np.bincount(at)
    means = np.bincount(at, weights=np.log(trace.lengths))[counts > 0] / counts[counts > 0]
    return float(means.max() - means.min())


def test_missing_data_is_told_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(traces, "COUNTS", tmp_path / "twitter_requests_per_second.parquet")
    assert missing().startswith("needs twitter_requests_per_second.parquet")
    with pytest.raises(InputError, match="data"):
        stable(10.0, 10.0, 0)


@needs_data
def test_lengths_have_the_published_ratio_of_p98_to_median_and_the_longest_is_512():
    lengths, _ = traces.stretched()
    assert (lengths.min(), lengths.max()) == (1, LONGEST)
    assert np.quantile(lengths, 0.98) / np.median(lengths) == pytest.approx(72 / 21, rel=0.02)


@needs_data
@pytest.mark.parametrize("make", [stable, bursty])
def test_a_trace_has_the_rate_and_the_lengths_asked_for_and_is_the_same_for_a_seed(make):
    trace, again, other = make(400.0, 100.0, 0), make(400.0, 100.0, 0), make(400.0, 100.0, 1)
    assert len(trace.times) == len(trace.lengths) == pytest.approx(40_000, rel=0.03)
    assert (np.diff(trace.times) >= 0).all()
    assert 0 <= trace.times[0] <= trace.times[-1] < 100
    assert (trace.lengths.min() >= 1) and (trace.lengths.max() <= LONGEST)
    assert (trace.times == again.times).all() and (trace.lengths == again.lengths).all()
    assert len(other.times) != len(trace.times) or (other.times != trace.times).any()
    assert np.median(trace.lengths) == pytest.approx(np.median(traces.stretched()[0]), rel=0.03)


@needs_data
def test_bursty_is_far_more_dispersed_than_stable_at_every_scale():
    calm, wild = stable(500.0, 120.0, 0), bursty(500.0, 120.0, 0)
    assert dispersion(calm, 0.1) < 4
    for seconds in (0.1, 1.0, 10.0):
        assert dispersion(wild, seconds) > 3 * dispersion(calm, seconds)


@needs_data
def test_inside_its_seconds_stable_is_poisson_and_bursty_is_not():
    """At a high rate: the variance of twentieths of a second around their own second's mean."""

    def inside(trace) -> float:
        counts = np.bincount((trace.times * 20).astype(int), minlength=20 * 60)[: 20 * 60].reshape(60, 20)
        return float(counts.var(axis=1, ddof=1).mean() / counts.mean())

    assert inside(stable(4000.0, 60.0, 0)) == pytest.approx(1.0, rel=0.1)
    assert inside(bursty(4000.0, 60.0, 0)) > 20


@needs_data
@pytest.mark.parametrize("seed", range(3))
def test_no_ten_seconds_of_the_recorded_counts_of_a_bursty_window_exceed_the_peak(seed):
    counts = traces._window(300.0, np.random.default_rng(seed), calm=False)
    tens = np.convolve(counts, np.ones(10) / 10, "valid")
    assert tens.max() <= PEAK * counts.mean() + 1e-9
    assert counts.min() > 0


@needs_data
def test_lengths_drift_only_where_asked():
    fixed, drifting = bursty(500.0, 1200.0, 0), bursty(500.0, 1200.0, 0, drift=True)
    assert drift(fixed) < 0.1
    assert 0.3 < drift(drifting) < 0.75
    assert drifting.name == "twitter-bursty-drifting"


@needs_data
def test_at_the_ends_of_the_walk_the_mean_of_log_length_has_moved_by_the_stated_amount():
    logs = np.log(np.arange(1, LONGEST + 1))
    means = [np.diff(row) @ logs for row in traces._distributions()]
    middle = means[QUANTILES // 2]
    assert means[0] - middle == pytest.approx(-traces.DRIFT, abs=1e-6)
    assert means[-1] - middle == pytest.approx(traces.DRIFT, abs=1e-6)
    assert (np.diff(means) > 0).all()


def test_the_walk_stays_inside_and_moves():
    walk = traces._walk(5000, np.random.default_rng(0))
    assert (np.abs(walk) <= 1).all()
    assert walk.max() > 0.95 and walk.min() < -0.95
    assert np.abs(np.diff(walk)).max() < 6 * traces.STEP


def test_the_chain_has_a_mean_factor_of_one_and_covers_the_time():
    edges, factor = traces._modulation(500.0, np.random.default_rng(0))
    stays = np.diff(edges)
    assert (edges[0], edges[-1], len(stays)) == (0.0, 500.0, len(factor))
    assert (factor * stays).sum() / 500.0 == pytest.approx(1.0, abs=0.05)
    assert stays[factor == SLOW].mean() == pytest.approx(SLOW_SECONDS, rel=0.1)
    assert stays[factor == FAST].mean() == pytest.approx(FAST_SECONDS, rel=0.1)


def test_arrivals_follow_the_rate_of_their_stretch():
    rng = np.random.default_rng(0)
    times = traces._arrivals(np.array([0.0, 1.0, 3.0]), np.array([3.0, 1.0]), 20_000.0, 3.0, rng)
    assert len(times) == pytest.approx(60_000, rel=0.02)
    assert (times < 1.0).mean() == pytest.approx(0.6, abs=0.01)


@needs_data
@pytest.mark.parametrize("seconds", [0.0, 84_601.0])
def test_a_window_longer_than_a_recorded_day_is_refused(seconds):
    with pytest.raises(InputError, match="seconds"):
        stable(10.0, seconds, 0)
