"""Many coroutines of which only some run at a time."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.window import run_each, width


class Runs:
    """Coroutines that end when `turns` of the event loop are over; `most` of them ran at a time."""

    def __init__(self, turns: int = 2) -> None:
        self._turns = turns
        self.begun, self.running, self.most, self.cancelled = 0, 0, 0, 0

    async def double(self, number: int) -> int:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(self._turns + number % 3):
                await asyncio.sleep(0)
            return 2 * number
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


@pytest.mark.parametrize(("count", "most"), [(1, 16), (15, 16), (16, 16), (100, 16), (100, 40), (30, 40)])
def test_all_are_run_in_order_and_so_many_at_a_time(count, most):
    runs = Runs(turns=10)
    assert asyncio.run(run_each(range(count), runs.double, most)) == [2 * number for number in range(count)]
    assert runs.most == min(count, most)


def test_once_it_shall_not_go_on_no_more_are_started_and_those_that_run_are_cancelled():
    runs = Runs()
    results = asyncio.run(run_each(range(100), runs.double, 16, lambda: runs.begun < 40))
    answered = [number for number, result in enumerate(results) if result is not None]
    assert runs.begun == 40 == len(answered) + runs.cancelled and runs.running == 0 and runs.cancelled > 0
    assert all(results[number] == 2 * number for number in answered) and max(answered) < 40


def test_an_error_ends_those_that_run():
    runs = Runs(turns=1000)

    async def run(number: int) -> int:
        if number == 20:
            raise ValueError("twenty")
        return await runs.double(number)

    async def fail() -> None:
        with pytest.raises(ValueError, match="twenty"):
            await run_each(range(100), run, 32)
        await asyncio.sleep(0)
        assert (runs.begun, runs.cancelled, runs.running) == (31, 31, 0)

    asyncio.run(fail())


def test_who_leaves_takes_all_along():
    runs = Runs(turns=1000)

    async def leave() -> None:
        running = asyncio.create_task(run_each(range(100), runs.double, 32))
        while runs.begun < 32:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(leave())
    assert (runs.begun, runs.cancelled, runs.running) == (32, 32, 0)


def test_a_launch_waits_while_another_runs_on_each_device():
    assert (width(1, 4), width(1, 32), width(3, 32)) == (16, 64, 192)
