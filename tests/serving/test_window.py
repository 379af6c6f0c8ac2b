"""Many coroutines of which only some run at a time."""

from __future__ import annotations

import asyncio

import pytest

from pliant.serving.lifecycle.endpoint import run_each


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
