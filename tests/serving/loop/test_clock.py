"""A machine's clock that is set, ahead or back, costs no label, and is followed in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.serving.driver import LEAP, PATIENCE, PatientClock

DAY = 86_400.0


class Machine:
    """`true` seconds have passed; its clock is off by `error`."""

    def __init__(self) -> None:
        self.true, self.error = 1e9, 0.0
        self.clock = PatientClock(lambda: self.true + self.error, lambda: self.true)

    def off_by(self, error: float, after: float) -> None:
        self.true, self.error = self.true + after, error


@given(st.lists(st.tuples(st.floats(-40 * DAY, 40 * DAY), st.floats(0, 1000)), max_size=20))
def test_whatever_leaps_come_and_go_within_an_hour_no_time_is_lost_or_gained_by_leaps_ahead(leaps):
    machine = Machine()
    for error, after in leaps:
        machine.off_by(error, after)
        machine.clock()
        machine.off_by(0.0, 60.0)
        assert machine.clock() <= machine.true + 1e-3, "it is never ahead once the machine's clock is right"
    for after in (60.0, PATIENCE):
        machine.off_by(0.0, after)
        last = machine.clock()
    assert last == pytest.approx(machine.true), "it is followed an hour later at the latest"


@given(st.floats(LEAP + 1, 400 * DAY))
def test_a_leap_that_lasts_is_followed_after_an_hour_and_one_back_at_once(leap):
    machine = Machine()
    for error, after, followed in (
        (leap, 10.0, 0.0),
        (leap, PATIENCE - 1, 0.0),
        (leap, 2.0, leap),
        (-leap, 2.0, -leap),
    ):
        machine.off_by(error, after)
        assert machine.clock() == pytest.approx(machine.true + followed)


def test_a_clock_that_is_right_is_followed_to_the_second_for_a_month_and_small_steps_at_once():
    machine = Machine()
    for hour in range(24 * 30):
        machine.off_by(hour % 7 * 100.0, 3600.0)
        assert machine.clock() == machine.true + machine.error
