"""A pending request is answered once, with the times of its launch and the results of all."""

from __future__ import annotations

import asyncio

import pytest

from pliant.protocol import Launch, Request
from pliant.serving.answers import AnswerRate, Completed, Dispatched, LaunchResult, Pending, Rejected

REQUEST = Request(7, 10.0, 12.0, "task")


def pending() -> Pending:
    return Pending(REQUEST, "payload", asyncio.get_running_loop().create_future())


def test_an_answer_says_how_long_it_waited_ran_and_by_how_much_it_is_late():
    async def run():
        waiting = pending()
        first = LaunchResult("small", Dispatched(Launch(1, 0, (7, 8, 9), 4), 10.25), 0.5, 10.75)
        second = LaunchResult("large", Dispatched(Launch(2, 0, (7,), -5), 11.0), 1.25, 12.25)
        waiting.launches = {1: first, 2: second}
        assert waiting.last is second
        answer = waiting.completed(1, 12.5, "late")
        assert (answer.output, answer.setting, answer.batch) == ("small", 4, 3)
        assert (answer.queue_seconds, answer.run_seconds, answer.late_by) == (0.25, 0.5, 0.5)
        assert (answer.reason, answer.launches, answer.on_time) == ("late", (first, second), False)
        assert waiting.completed(2, 12.0).on_time  # exactly at its deadline

    asyncio.run(run())


def test_the_first_answer_counts_and_later_ones_change_nothing():
    async def run():
        waiting = pending()
        waiting.settle(Rejected("full"))
        waiting.settle(Rejected("late"))
        waiting.fail(ValueError("too late"))
        assert await waiting.answer == Rejected("full", 1.0)
        failing = pending()
        failing.fail(ValueError("first"))
        failing.settle(Rejected("full"))
        with pytest.raises(ValueError, match="first"):
            await failing.answer

    asyncio.run(run())


@pytest.mark.parametrize(("late_by", "on_time"), [(-0.1, True), (0.0, True), (0.1, False)])
def test_an_answer_is_on_time_up_to_its_deadline(late_by, on_time):
    assert Completed("output", 0, 1, 0.0, 0.0, late_by).on_time is on_time


def test_a_queue_is_empty_after_as_many_seconds_as_its_answers_take():
    rate = AnswerRate()
    for index in range(1000):
        rate.count(index * 0.1)
    assert rate.seconds(50, 100.0) == pytest.approx(5.0, rel=0.02)


def test_nothing_is_known_before_the_first_answer_and_long_after_the_last():
    rate = AnswerRate()
    assert rate.seconds(50, 0.0) == 1.0
    rate.count(0.0)
    assert rate.seconds(50, 1000.0) == 1.0
