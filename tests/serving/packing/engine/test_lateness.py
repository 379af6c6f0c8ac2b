"""Late forecasts are counted over a minute, and too many of them are said once a minute."""

from __future__ import annotations

from serving.packing.engine.lateness import MAX_LATE_SHARE, Lateness, RecentForecasts


def counted(*forecasts: tuple[str, float]) -> Lateness:
    lateness = Lateness()
    for origin, at in forecasts:
        lateness.add(origin, at)
    return lateness


def test_the_last_minute_has_shares_of_late_and_failed_forecasts():
    lateness = counted(("predicted", 5.0), ("late", 5.2), ("failed", 6.0), ("predicted", 6.5))
    recent = lateness.recent(7.0)
    assert recent == RecentForecasts(4, 1, 1)
    assert (recent.late_share, recent.failed_share) == (0.25, 0.25)


def test_forecasts_are_forgotten_after_a_minute():
    lateness = counted(("late", 5.0), ("predicted", 64.0))
    assert lateness.recent(64.9) == RecentForecasts(2, 1, 0)
    assert lateness.recent(65.0) == RecentForecasts(1, 0, 0)
    nothing = lateness.recent(500.0)
    assert (nothing, nothing.late_share, nothing.failed_share) == (RecentForecasts(0, 0, 0), 0.0, 0.0)


def test_too_many_late_ones_are_said_at_the_end_of_each_minute_and_not_in_between():
    lateness = counted(("late", 0.0))
    assert lateness.excess(0.0) is None
    lateness.add("late", 30.0)
    assert lateness.excess(59.9) is None
    assert lateness.excess(60.0) == RecentForecasts(1, 1, 0)
    lateness.add("late", 61.0)
    assert lateness.excess(119.9) is None
    assert lateness.excess(120.5) == RecentForecasts(1, 1, 0)


def test_as_many_late_ones_as_are_bearable_are_not_said():
    whole = round(1 / MAX_LATE_SHARE)
    lateness = counted(*[("predicted", 70.0)] * (whole - 1), ("late", 70.0))
    assert lateness.excess(0.0) is lateness.excess(80.0) is None
    lateness.add("late", 130.0)
    assert lateness.excess(150.0) == RecentForecasts(1, 1, 0)
