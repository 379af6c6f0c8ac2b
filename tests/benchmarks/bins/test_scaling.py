"""Devices under autoscaling: how the mean over time is taken, and that a scheme follows its load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.bins.published import BERT_LARGE
from benchmarks.bins.scaling import COMPARED, HEAD, Found, Row, ScalingConfig, ground, in_use, load, serve, wave
from benchmarks.bins.study import SHARED
from benchmarks.bins.traces import Trace, missing

needs_data = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
CONFIG = ScalingConfig(seconds=240.0, most=6, slower=8.0, low=0.5, high=3.0, least=1)


def test_devices_are_weighted_by_the_time_that_they_are_in_use():
    steps = [(0.0, 9), (5.0, 2), (20.0, 4), (25.0, 3), (99.0, 7)]
    assert in_use(steps, 10.0, 30.0) == (pytest.approx((10 * 2 + 5 * 4 + 5 * 3) / 20), 2, 4)


def test_before_the_first_step_of_the_stretch_the_last_one_before_holds():
    assert in_use([(0.0, 3)], 10.0, 20.0) == (3.0, 3, 3)


def test_the_work_rises_from_the_lowest_to_the_highest_and_falls_again():
    config = ScalingConfig(seconds=100.0, low=2.0, high=8.0, cycles=2)
    assert wave(np.array([0.0, 25.0, 50.0, 75.0, 100.0]), config) == pytest.approx([2.0, 8.0, 2.0, 8.0, 2.0])


def test_a_slower_device_takes_longer_and_the_slo_stays():
    slow = ground(ScalingConfig(slower=4.0))
    assert slow.slo == BERT_LARGE.slo
    assert slow.seconds[-1] == pytest.approx(4 * BERT_LARGE.longest)


@needs_data
def test_the_load_begins_after_a_trickle_and_is_as_heavy_as_told():
    bins = ground(CONFIG)
    trace, start = load(bins, CONFIG, 0)
    seconds = np.array(bins.seconds)[np.searchsorted([s.length for s in bins.shapes[:-1]], trace.lengths)]
    work = seconds[trace.times >= start].sum() / CONFIG.seconds
    assert work == pytest.approx((CONFIG.low + CONFIG.high) / 2, rel=0.2)
    assert seconds[trace.times < start].sum() / start < 0.25
    assert np.all(np.diff(trace.times) >= 0)


def test_more_devices_serve_a_load_that_one_cannot():
    """Where late requests go last, answers alone once looked the better the longer those waited, and devices were let go."""
    bins, rng = ground(CONFIG), np.random.default_rng(0)
    start = (CONFIG.most - CONFIG.least + 1) * 65.0
    trickle = np.arange(0.0, start, 1.0)
    times = np.concatenate([trickle, start + np.sort(rng.uniform(0, CONFIG.seconds, int(CONFIG.seconds * 75)))])
    lengths = np.full(len(times), 60, np.int32)  # 26 ms each: some two devices' worth
    row = serve(SHARED, bins, Trace(times, lengths, "flat"), start, CONFIG, 0)
    assert row.requests > 10_000
    assert 2 < row.devices < CONFIG.most and row.least < row.most
    assert row.violations < 0.2 and row.mean < 2.0


def test_the_table_has_a_line_for_each_scheme_and_takes_the_mean_over_seeds():
    rows = [Row(one.name, seed, 9, 4.0 + seed, 0.01, 0.02, 0.0, 2, 5 + seed) for one in COMPARED for seed in (0, 1)]
    made = Found(replace(CONFIG, seeds=2), tuple(rows))
    assert made.devices(SHARED) == 4.5
    table = made.table()
    assert [line[0] for line in table] == [scheme.name for scheme in COMPARED]
    assert table[0][1:] == ("4.50", "10.0", "20.0", "0.00%", "2 to 6") and len(HEAD) == len(table[0])
