"""What every system's endpoint does: deadlines count from the socket, and so many texts are run at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pliant.serving.lifecycle.endpoint import Endpoint, run_each
from pliant.serving.loop.observe import DriftCounter, Served


async def test_a_deadline_counts_from_the_socket_and_earlier_by_the_way_back_of_its_answer():
    refresher = SimpleNamespace(poller=None, generations=None, trials=None, watcher=None, drift=DriftCounter())
    served = Endpoint(SimpleNamespace(watch_burn_in=100), refresher, None, lambda: 12.5)

    async def counted(arrived: float) -> Served[float]:
        return Served(arrived, ())

    assert await served.route_trial(counted, 12.0, 0.2) == 12.0, "nothing is known of answers yet"
    now = asyncio.get_running_loop().time()
    for _ in range(100):
        served.front_door.answered(0.05, now)
    assert await served.route_trial(counted, 12.0, 0.2) == pytest.approx(11.95, abs=0.01)
    for _ in range(200):
        await served.route_trial(counted, 12.0, 0.2)
    assert served.front_door.usual_deadline == pytest.approx(0.2, rel=0.01)


class Runs:
    """Coroutines that end when `turns` of the event loop are over; `most` of them ran at a time."""

    def __init__(self, turns: int = 2) -> None:
        self._turns = turns
        self.running, self.most = 0, 0

    async def double(self, number: int) -> int:
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self._turns + number % 3):
            await asyncio.sleep(0)
        self.running -= 1
        return 2 * number


@pytest.mark.parametrize(("count", "most"), [(0, 16), (1, 16), (15, 16), (16, 16), (100, 16), (100, 40), (30, 40)])
def test_all_are_run_in_order_and_so_many_at_a_time(count, most):
    runs = Runs(turns=10)
    assert asyncio.run(run_each(range(count), runs.double, most)) == [2 * number for number in range(count)]
    assert runs.most == min(count, most)


@pytest.mark.parametrize("count", [1, 3])
def test_nothing_is_begun_where_it_does_not_go_on(count):
    runs = Runs()
    assert asyncio.run(run_each(range(count), runs.double, 16, lambda: False)) == [None] * count
    assert runs.most == 0


@pytest.mark.parametrize("count", [1, 3])
def test_an_error_of_one_is_raised(count):
    async def fail(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        asyncio.run(run_each(range(count), fail, 16))
