"""The watch on the registry goes on, whatever a poll raises."""

from __future__ import annotations

import asyncio
from contextlib import suppress

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
