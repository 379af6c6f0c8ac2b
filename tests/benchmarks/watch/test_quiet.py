"""Quiet months and planted changes, on streams that are made up here: what is counted, and what a table says."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.benchmarks.watch import quiet
from pliant.benchmarks.watch.quiet import evidence
from pliant.benchmarks.watch.streams import Recording
from pliant.watch.binning import classes, linear
from pliant.watch.detector import Detector, Stream

VALUES = np.random.default_rng(0).normal(size=6000)
SCORES = Recording("bins", "score", VALUES, linear(-4, 4))
LABELS = Recording("tokens", "class", np.arange(6000.0) % 4, classes("0123"))


def test_quiet_days_raise_no_alarm():
    for result in quiet.measure([SCORES, LABELS], runs=2, days=2):
        assert result.runs == ()
        assert result.observations == 2 * 86_400


@pytest.mark.parametrize("bins", [classes("01234"), linear(0, 5, 32)])
@pytest.mark.parametrize("changed", [False, True])
def test_the_evidence_over_a_whole_stream_is_the_detectors(bins, changed):
    rng, number = np.random.default_rng(0), bins.bins
    shares = np.full((150, number), 1 / number)
    if changed:
        shares[100:] = np.linspace(0.1, 1.9, number) / number
    counts = np.array([rng.multinomial(int(rng.integers(1, 40)), each) for each in shares])
    stream = Stream("x", bins, burn_in=300, pace=500.0, refinements=2)
    detector, expected = Detector(stream), []
    for block in counts:
        detector.update(block)
        expected.append(detector.evidence)
        if detector.alarm:
            break
    assert (detector.alarm is not None) == changed
    assert evidence(stream, counts)[: len(expected)] == pytest.approx(expected, rel=1e-9)
