"""A pending request is answered once, with the times of its launch and the results of all."""

from __future__ import annotations

import asyncio

from pliant.protocol import Launch, Request
from pliant.serving.driver import Dispatched, LaunchResult, Pending

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
