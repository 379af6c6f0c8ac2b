"""A machine's clock that is set, ahead or back, costs no label, and is followed in the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from pliant.outcomes.answered import Answered
from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.outcomes.keeper import open_keeper
from pliant.serving.outcomes.outcomes import Outcomes
from pliant.serving.outcomes.patient_clock import LEAP, PATIENCE, PatientClock
from tests.fixtures.observed import remember

HOUR, DAY = 3600.0, 86_400.0
ACME = Client("acme", 1.0, frozenset({"use"}), "key-1")
ANSWERED = Answered("t", 1, "default", "small", "b", 0.8, 0.9, classes=("a", "b"), tenant="acme")


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
    machine.off_by(leap, 10.0)
    assert machine.clock() == pytest.approx(machine.true)
    machine.off_by(leap, PATIENCE - 1)
    assert machine.clock() == pytest.approx(machine.true)
    machine.off_by(leap, 2.0)
    assert machine.clock() == pytest.approx(machine.true + leap)
    machine.off_by(-leap, 2.0)
    assert machine.clock() == pytest.approx(machine.true - leap)


def test_a_clock_that_is_right_is_followed_to_the_second_for_a_month_and_small_steps_at_once():
    machine = Machine()
    for hour in range(24 * 30):
        machine.off_by(hour % 7 * 100.0, HOUR)
        assert machine.clock() == machine.true + machine.error


def test_labels_of_before_and_after_a_clock_that_was_a_month_ahead_are_all_taken_and_kept(tmp_path):
    machine = Machine()
    keeper = open_keeper(tmp_path, 100, 30 * DAY, False)
    keeper._store._clock = PatientClock(lambda: machine.true + machine.error, lambda: machine.true)
    outcomes = Outcomes(CollectorRegistry(), 100, clock=machine.clock, keeper=keeper)
    remember(outcomes, "before", ANSWERED)
    machine.off_by(31 * DAY, 60.0)
    remember(outcomes, "while it was ahead", ANSWERED)
    assert outcomes.take("while it was ahead", "b", ACME)["correct"]
    keeper._store._pruned -= 2 * HOUR  # so that what is old goes with the next write
    machine.off_by(0.0, 600.0)
    assert outcomes.take("before", "b", ACME)["correct"]
    machine.off_by(-HOUR, 600.0)
    remember(outcomes, "after", ANSWERED)
    assert outcomes.take("after", "b", ACME)["correct"], "an hour back"
    with pytest.raises(ApiError, match="recent answer"):
        outcomes.take("never given", "b", ACME)
    outcomes.close()
    keeper = open_keeper(tmp_path, 100, 30 * DAY, False)
    keeper._store._clock = lambda: machine.true
    assert len(list(keeper.load().answers)) == 3
    keeper._store.close()


def test_labels_are_taken_at_their_rate_whatever_the_clock_does():
    machine = Machine()
    outcomes = Outcomes(CollectorRegistry(), 5000, clock=lambda: machine.true + machine.error)
    for error in (0.0, -HOUR, DAY, -DAY, 0.0):
        machine.off_by(error, 60.0)
        for number in range(100):
            remember(outcomes, f"{error} {number} {machine.true}", ANSWERED)
            assert outcomes.take(f"{error} {number} {machine.true}", "b", ACME)["correct"]
