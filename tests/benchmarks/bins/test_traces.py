"""The Twitter traces: what they are made of, and that they have the rate, the bursts and the drift that they tell."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.bins import traces
from pliant.benchmarks.bins.traces import (
    LONGEST,
    Trace,
    bursty,
    missing,
    stable,
)

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def dispersion(trace: Trace, seconds: float) -> float:
    """Return the variance over the mean of the requests in stretches of `seconds` (a Poisson process: 1)."""
    counts = np.bincount((trace.times / seconds).astype(np.int64))
    return float(counts.var() / counts.mean())


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
