"""What runs compiled over whole streams is what the originals do value by value."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ks_2samp

from benchmarks.watch import ours
from benchmarks.watch.kernels import distance, kswin, page_hinkley
from pliant.watch import Detector, Stream, classes, linear


@pytest.mark.parametrize("bins", [classes("01234"), linear(0, 5, 32)])
@pytest.mark.parametrize("changed", [False, True])
def test_the_evidence_is_the_detectors(bins, changed):
    rng, number = np.random.default_rng(0), bins.bins
    shares = np.full((150, number), 1 / number)
    if changed:
        shares[100:] = np.linspace(0.1, 1.9, number) / number
    counts = np.array(
        [rng.multinomial(size, each) for size, each in zip(rng.integers(1, 40, 150), shares, strict=True)]
    )
    stream = Stream("x", bins, burn_in=300, pace=500.0, refinements=2)
    detector, evidence = Detector(stream), []
    for block in counts:
        detector.update(block)
        evidence.append(detector.evidence)
        if detector.alarm:
            break
    assert (detector.alarm is not None) == changed
    assert ours.evidence(stream, counts)[: len(evidence)] == pytest.approx(evidence, rel=1e-9)


def test_page_hinkley_is_rivers():
    drift = pytest.importorskip("river.drift", reason="river is not installed")
    values = np.random.default_rng(0).random(3000)
    values[2000:] += 0.3
    statistic = page_hinkley(values, 0.01, 0.999)
    for threshold in (5.0, 20.0, 60.0):
        original = drift.PageHinkley(delta=0.01, threshold=threshold, alpha=0.999)
        places = []
        for place, value in enumerate(values.tolist()):
            original.update(value)
            if original.drift_detected:
                places.append(place)
                break
        assert places[:1] == np.flatnonzero(statistic > threshold)[:1].tolist()


def test_the_distance_is_scipys():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(0, 20, (2, 30)).astype(float)
        assert distance(first, second) == pytest.approx(ks_2samp(first, second).statistic)


def test_kswin_sees_a_change_in_its_latest_values_as_rivers_does():
    drift = pytest.importorskip("river.drift", reason="river is not installed")
    values = np.random.default_rng(0).random(600)
    values[400:] += 0.6
    statistic, original = kswin(values, 100, 30, 1, 0), drift.KSWIN(alpha=1e-6, window_size=100, stat_size=30, seed=0)
    limit = min(d / 30 for d in range(31) if ks_2samp(np.arange(30) + 0.5, np.arange(30) + d).pvalue <= 1e-6)
    alarms = []
    for place, value in enumerate(values.tolist()):
        original.update(value)
        if original.drift_detected:
            alarms.append(place)
            break
    assert 400 < alarms[0] < 430
    assert abs(int(np.flatnonzero(statistic >= limit - 1e-9)[0]) - alarms[0]) <= 5
    assert (statistic[:99] == 0).all()
