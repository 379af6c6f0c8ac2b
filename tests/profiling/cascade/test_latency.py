"""Latency tables of the cascade: which lengths are measured, and that a table never contradicts itself."""

from __future__ import annotations

import numpy as np
import pytest

from pliant.profiling.cascade.latency import LatencyConfig, profile
from pliant.profiling.timer import TimerConfig
from tests.fixtures.cascade.classifiers import tiny_classifier

FAST = LatencyConfig(lengths=(4, 8, 30), batches=(1, 3), timer=TimerConfig(warmup=1, least=1, most=1))


@pytest.mark.parametrize("importance", [False, True])
def test_lengths_below_the_longest_text_are_measured_and_that_one(importance):
    reports = []
    table = profile(
        tiny_classifier(max_length=24), FAST, progress=lambda *at: reports.append(at), importance=importance
    )
    assert (table.settings, table.batches) == ((4, 8, 24), (1, 3))
    assert reports == [(n, 6) for n in range(1, 7)]


def test_a_table_rises_with_length_and_batch():
    seconds = np.array(profile(tiny_classifier(), FAST).seconds)
    assert np.all(np.diff(seconds, axis=0) >= 0)
    assert np.all(np.diff(seconds, axis=1) >= 0)
