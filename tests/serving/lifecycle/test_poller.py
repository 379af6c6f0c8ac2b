"""The watch on the registry goes on, whatever a poll raises."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from pliant.errors import RegistryError
from pliant.serving.lifecycle.refresh import Outcome, Poller
from tests.fixtures.fakes import run_virtually


class Counter:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def refreshed(self, outcome: str) -> None:
        self.outcomes.append(outcome)


def test_an_unexpected_error_does_not_end_the_watch_and_is_recorded():
    async def main():
        faults, counter = [ValueError("a bug"), OSError("a socket"), MemoryError()], Counter()

        async def poll(_retry_held: bool) -> Outcome:
            if faults:
                raise faults.pop(0)
            return Outcome("unchanged", "", {})

        poller = Poller(poll, 10.0, counter)
        watch = asyncio.create_task(poller.run())
        await asyncio.sleep(25)
        assert (poller.last.outcome, poller.last.message) == ("failed", "a socket")
        await asyncio.sleep(20)
        assert counter.outcomes == ["failed", "failed", "failed", "unchanged"]
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch

    run_virtually(main())


def test_polls_of_the_watch_leave_alone_what_is_held_and_polls_by_hand_try_it_again(caplog):
    async def main():
        retries, counter = [], Counter()

        async def poll(retry_held: bool) -> Outcome:
            retries.append(retry_held)
            return Outcome("unchanged", "", {})

        poller = Poller(poll, 10.0, counter)
        watch = asyncio.create_task(poller.run())
        await asyncio.sleep(9.9)
        assert retries == []
        await asyncio.sleep(10.2)
        assert await poller.poll() == Outcome("unchanged", "", {})
        assert retries == [False, False, True]
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch

    run_virtually(main())
    assert caplog.records == []


def test_each_new_outcome_is_logged_once_and_an_error_of_ours_without_a_traceback(caplog):
    async def main():
        secret = "http://ann:hunter2@registry"
        steps = [
            Outcome("unchanged", "nothing new", {}),
            Outcome("held", "half", {}),
            Outcome("held", "half", {}),
            RegistryError(f"{secret} is gone"),
            OSError(f"{secret} is gone"),
            KeyError("a bug"),
            Outcome("changed", "now served: a version 2", {"a": 2}),
            Outcome("unchanged", "nothing new", {}),
        ]
        counter = Counter()

        async def poll(_retry_held: bool) -> Outcome:
            step = steps.pop(0)
            if isinstance(step, Exception):
                raise step
            return step

        poller = Poller(poll, 1.0, counter)
        watch = asyncio.create_task(poller.run())
        await asyncio.sleep(8.5)
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        assert counter.outcomes == ["unchanged", "held", "held", "failed", "failed", "failed", "changed", "unchanged"]
        assert "hunter2" not in poller.last.message

    with caplog.at_level(logging.INFO, "pliant.serving"):
        run_virtually(main())
    logged = [(record.levelname, record.message.replace("***@", "")) for record in caplog.records]
    assert logged[0] == ("WARNING", "refresh: held: half")
    assert [level for level, _ in logged[1:]] == ["WARNING", "ERROR", "WARNING", "ERROR", "INFO"]
    assert logged[2][1] == logged[4][1] == "the poll of the registry failed"
    assert logged[5] == ("INFO", "refresh: changed: now served: a version 2")
    assert all("hunter2" not in message for _, message in logged)


def test_a_bell_that_rings_is_followed_by_a_poll_at_once_and_without_it_polls_come_as_usual():
    async def main():
        times, rung = [], 0
        clock = asyncio.get_running_loop().time
        start = clock()

        async def poll(_retry_held: bool) -> Outcome:
            times.append(round(clock() - start, 1))
            return Outcome("unchanged", "", {})

        poller = Poller(poll, 10.0, Counter(), lambda: rung)
        watch = asyncio.create_task(poller.run())
        await asyncio.sleep(3)
        assert times == []
        rung = 1
        await asyncio.sleep(0.5)
        assert len(times) == 1 and times[0] < 3.5
        await asyncio.sleep(11)
        assert len(times) == 2
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch

    run_virtually(main())
