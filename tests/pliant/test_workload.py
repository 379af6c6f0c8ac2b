"""Loads: their rates, their seeds and their errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.workload import (
    RequestKind,
    Segment,
    alternating,
    markov_modulated,
    piecewise,
    poisson,
    recorded,
    requests,
    segment_of,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_poisson_arrivals_have_the_rate_and_the_spread_of_poisson():
    times = poisson(50, 400, rng())
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert np.all(np.diff(times) >= 0)
    assert 0 <= times[0] <= times[-1] < 400
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("rate", "seconds"), [(-1, 1), (1, -1), (float("nan"), 1)])
def test_a_negative_or_missing_rate_is_refused(rate, seconds):
    with pytest.raises(InputError, match="rate and seconds"):
        poisson(rate, seconds, rng())


def test_each_segment_has_its_own_rate():
    segments = [Segment(10, 200), Segment(100, 100), Segment(0, 50)]
    times = piecewise(segments, rng())
    counts = np.bincount(segment_of(times, segments), minlength=3)
    assert counts[0] == pytest.approx(2000, rel=0.1)
    assert counts[1] == pytest.approx(10_000, rel=0.05)
    assert counts[2] == 0
    assert np.all(np.diff(times) >= 0)


def test_a_markov_load_fills_its_time_and_never_stays_in_a_state_when_it_jumps():
    segments, times = markov_modulated([5, 50, 500], dwell=2.0, seconds=300, rng=rng(1))
    assert sum(s.seconds for s in segments) == pytest.approx(300)
    assert all(a.rate != b.rate for a, b in pairwise(segments))
    assert {s.rate for s in segments} == {5, 50, 500}
    assert np.mean([s.seconds for s in segments]) == pytest.approx(2.0, rel=0.3)
    assert len(times) == pytest.approx(sum(s.rate * s.seconds for s in segments), rel=0.05)


@pytest.mark.parametrize(("rates", "dwell"), [([], 1.0), ([1, 2], 0.0), ([1, 2], -1.0), ([1, 2], float("nan"))])
def test_a_markov_load_that_would_never_end_is_refused(rates, dwell):
    """A dwell of zero once looped for ever."""
    with pytest.raises(InputError, match="dwell and rates"):
        markov_modulated(rates, dwell, 10, rng())


def test_recorded_counts_come_back_interval_by_interval():
    times = recorded([3, 0, 5], 10.0, rng())
    assert np.bincount((times // 10).astype(int), minlength=3).tolist() == [3, 0, 5]
    assert np.all(np.diff(times) >= 0)


def test_scaled_counts_keep_their_total():
    """Once they were cut to whole numbers, and a trace scaled to 0.9 requests an interval was empty."""
    assert len(recorded([0.9] * 10_000, 1.0, rng())) == pytest.approx(9000, rel=0.02)
    assert len(recorded([2.0] * 10, 1.0, rng())) == 20


def test_requests_carry_their_kinds_deadline_and_utility():
    kinds = [RequestKind("a", 0.5, 0.1), RequestKind("b", 2.0, 0.9)]
    drawn = requests(np.linspace(0, 1, 2000), kinds, rng())
    assert [r.id for r in drawn] == list(range(2000))
    for request in drawn:
        kind = kinds[0] if request.task == "a" else kinds[1]
        assert (request.deadline, request.utility) == (request.arrival + kind.deadline, kind.utility)
    assert sum(r.task == "a" for r in drawn) == pytest.approx(1000, rel=0.15)


@given(st.integers(0, 2**32 - 1))
def test_a_seed_gives_the_same_load_again(seed):
    def load():
        source = rng(seed)
        segments, times = markov_modulated([5, 50], 0.5, 2.0, source)
        return segments, requests(times, [RequestKind("a", 1, 1), RequestKind("b", 1, 1)], source)

    assert load() == load()


def test_alternating_segments_go_quiet_loud_quiet_loud():
    assert [s.rate for s in alternating([1, 2], [10, 20], 3.0)] == [1, 10, 2, 20]
    with pytest.raises(InputError, match="low and high"):
        alternating([1], [10, 20], 3.0)
    with pytest.raises(InputError, match="low and high"):
        alternating([1, 2], [10], 3.0)


def test_a_time_on_a_border_falls_into_the_later_segment_and_the_end_into_the_last():
    assert segment_of(np.array([0.0, 1.0, 2.9, 3.0, 99.0]), [Segment(1, 1), Segment(1, 2)]).tolist() == [0, 1, 1, 1, 1]


def test_a_markov_load_jumps_to_every_other_state():
    segments, _ = markov_modulated([1, 2, 3], dwell=0.1, seconds=30, rng=rng(3))
    jumps = {(before.rate, after.rate) for before, after in pairwise(segments)}
    assert jumps == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}
