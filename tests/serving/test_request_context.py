"""The way back of an answer is measured from the decision until it is written, wherever that is decided."""

from __future__ import annotations

import asyncio
import math
import random

import pytest

from pliant.serving.request_context import SLOWER, WINDOW, FrontDoor, begin_way_back, note_decided


@pytest.mark.virtual
async def test_it_lasts_from_the_last_decision_until_the_answer_begins_and_is_measured_once():
    way = begin_way_back()
    way.decided()
    await asyncio.sleep(1.0)
    note_decided()
    await asyncio.sleep(0.25)
    assert way.written() == pytest.approx(0.25)
    note_decided()
    assert way.written() is None


USUAL = 0.1  # seconds


def a_door(*seconds: float, now: float = 0.0) -> FrontDoor:
    """Return a front door that wrote answers after so many seconds, all at one time."""
    door = FrontDoor(USUAL)
    for each in seconds:
        door.answered(each, now)
    return door


@pytest.mark.parametrize("seed", range(3))
def test_nine_of_ten_answers_are_written_within_the_forecast_which_is_not_much_longer_than_that(seed):
    draw = random.Random(seed)
    seconds = [draw.lognormvariate(math.log(0.02), 1.0) for _ in range(2000)]
    forecast = a_door(*seconds).way_back(0.0)
    assert sum(each <= forecast for each in seconds) / len(seconds) >= 1 - SLOWER
    assert forecast <= 1.25 * sorted(seconds)[int((1 - SLOWER) * len(seconds))]


def test_a_bad_moment_is_forgotten_within_four_usual_deadlines_even_if_nothing_is_let_in():
    door = a_door(*[10.0] * 300)
    assert door.way_back(0.0) >= 10.0
    assert door.way_back(2 * WINDOW * USUAL + 1e-9) == 0.0


@pytest.mark.parametrize("rate", [20.0, 200.0, 2000.0])
def test_refusals_after_a_pause_teach_as_answers_do_and_the_next_pause_is_seen_at_once(rate):
    door, now = FrontDoor(USUAL), 100.0
    for pause in (10.0, 0.3):
        for _ in range(int(10 * rate)):  # all that waited in the pause, written at its end
            door.answered(pause, now)
        assert door.way_back(now) >= pause
        recovered = None
        for number in range(int(10 * USUAL * rate)):
            at = now + number / rate
            door.answered(0.002, at)
            if recovered is None and door.way_back(at) <= 0.0025:
                recovered = at - now
        assert recovered is not None and recovered <= 5 * USUAL
        now += 10.0


def test_the_usual_deadline_is_that_of_most_requests_whatever_few_ask_for():
    door = FrontDoor()
    for number in range(2000):
        door.note_deadline(3600.0 if number % 100 == 50 else 0.1)
    assert door.usual_deadline == pytest.approx(0.1, rel=0.15)
    for _ in range(200):
        door.note_deadline(2.0)
    assert door.usual_deadline == pytest.approx(2.0, rel=0.01)
    door.note_deadline(0.0)
    assert 0.0 < door.usual_deadline < 2.0
