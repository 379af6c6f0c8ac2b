"""What a figure means beside the one that landed: values are made up, the rule is real."""

from __future__ import annotations

from datetime import date

import pytest

from pliant.benchmarks.ledger.rule import (
    STALE,
    Figure,
    Machine,
    elsewhere,
    from_plain,
    judge,
    must_repeat,
    to_plain,
)
from pliant.benchmarks.results import Target

TODAY = date(2026, 11, 27)


def figure(measured: float = 2.0, name: str = "a", day: str = "2026-11-26", skipped: str = "") -> Figure:
    """A figure that must be at least 1."""
    return Figure(name, "bins", Target("ratio", measured, ">=", 1.0, "x"), day, "abc", 3.0, Machine(2, "AVX2"), skipped)


MET, MISSED, SKIPPED = figure(2.0), figure(0.5), figure(float("nan"), skipped="needs Ray")


@pytest.mark.parametrize(
    ("now", "landed", "again", "verdict"),
    [
        (MET, MET, None, "met"),
        (MET, MISSED, None, "met"),
        (MET, None, None, "met"),
        (MISSED, MET, MISSED, "missed twice"),
        (MISSED, MET, MET, "met at the second"),
        (MISSED, MISSED, None, "missed"),  # as it was
        (MISSED, None, None, "missed"),  # new: nothing is lost
        (MISSED, SKIPPED, None, "missed"),  # nothing was kept before
        (figure(float("nan")), MET, figure(float("nan")), "missed twice"),
        (SKIPPED, MET, None, "skipped"),
    ],
)
def test_a_promise_is_lost_only_where_it_was_met_and_is_missed_twice(now, landed, again, verdict):
    assert must_repeat(now, landed) == (again is not None)
    line = judge(now, landed, again)
    assert (line.verdict, line.lost) == (verdict, verdict == "missed twice")


@pytest.mark.parametrize(("day", "verdict"), [("2026-11-13", "elsewhere"), ("2026-11-12", "stale"), ("", "stale")])
def test_what_is_measured_elsewhere_is_stale_after_two_weeks_and_where_it_never_was(day, verdict):
    assert STALE == 14
    assert elsewhere(figure(day=day), TODAY).verdict == verdict


@pytest.mark.parametrize("each", [MET, MISSED, SKIPPED])
def test_a_figure_reads_back_as_it_was_written(each):
    again = from_plain(to_plain(each))
    assert to_plain(again) == to_plain(each)
    assert (again.met, again.skipped, again.machine) == (each.met, each.skipped, each.machine)
