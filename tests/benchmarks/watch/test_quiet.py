"""Quiet months and planted changes, on streams that are made up here: what is counted, and what a table says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.watch import alarms, quiet, streams
from benchmarks.watch.streams import Recording
from pliant.watch.binning import classes, linear

VALUES = np.random.default_rng(0).normal(size=6000)
SCORES = Recording("bins", "score", VALUES, linear(-4, 4), change="half a deviation", changed=VALUES + 0.5)
LABELS = Recording("tokens", "class", np.arange(6000.0) % 4, classes("0123"))


def test_quiet_days_raise_no_alarm_and_the_course_is_measured():
    for result in quiet.measure([SCORES, LABELS], runs=2, days=2):
        assert result.runs == ()
        assert result.observations == 2 * 86_400
        assert 1.0 < result.odds < 1.5
        assert len(quiet.row(result)) == len(quiet.HEADINGS)


def test_a_stream_that_does_change_is_counted_as_an_alarm():
    tight = Recording("bins", "score", np.sort(VALUES), linear(-4, 4), sequence=True)  # a block is of one kind
    assert quiet.measure([tight], runs=1, days=2)[0].runs == (0,)


def test_a_course_moves_the_odds_of_every_tail_by_its_factor():
    night, day = (alarms._draw(SCORES, VALUES, np.full(200_000, phase), np.random.default_rng(1)) for phase in (-1, 1))
    for edge in (-1.0, 0.0, 1.0):
        low, high = np.mean(night >= edge), np.mean(day >= edge)
        factor = high / (1 - high) * (1 - low) / low
        assert factor == pytest.approx(np.exp(2 * alarms.COURSE * np.sin(1)), abs=0.04)


def test_values_change_at_their_place():
    before, after = alarms.values(SCORES, [3, 1], 1), alarms.values(SCORES, [3, 1], 1, 50_000)
    assert (before[:50_000] == after[:50_000]).all()
    assert after[50_000:].mean() - before[50_000:].mean() == pytest.approx(0.5, abs=0.03)


def test_delays_count_from_the_change_and_not_what_came_before_it():
    runs = [np.zeros(100)] * 3
    delay = alarms._delay("x", 1.0, [59, 10, -1], [50, 50, 40], runs, 0)
    assert (delay.median, delay.worst, delay.unnoticed, delay.early) == (35.0, 60.0, 1, 1)


@pytest.mark.slow
def test_a_comparison_has_ours_and_every_rival():
    pytest.importorskip("river", reason="river is not installed")
    (result,) = alarms.measure([SCORES], months=1, runs=2, days=1)
    assert result.ours.median < 1000
    assert result.ours.unnoticed == 0
    assert {delay.detector.partition("(")[0] for delay in result.rivals} == {"ADWIN", "PageHinkley", "KSWIN"}
    assert all(delay.quiet <= result.ours.quiet for delay in result.rivals)
    assert len(alarms.row(result)) == len(alarms.HEADINGS)


@pytest.mark.skipif(bool(streams.missing()), reason=streams.missing() or "the data are here")
@pytest.mark.slow
def test_every_system_has_streams_and_planted_changes():
    items = streams.recordings()
    assert {item.system for item in items} == {"tokens", "bins", "cascade", "packing"}
    assert {item.system for item in items if item.changed is not None} == {"tokens", "bins", "cascade", "packing"}
    assert len({item.name for item in items}) == len(items)
