"""What every system's endpoint says of itself comes from the generation that serves now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from pliant.serving.lifecycle.endpoint import Endpoint, run_each
from pliant.serving.lifecycle.refresh import Outcome
from pliant.serving.loop.observe import DriftCounter, Served


def endpoint() -> tuple[Endpoint, SimpleNamespace]:
    driver = SimpleNamespace(ready=True, alive=True, waiting=3, pending=7)
    generations = SimpleNamespace(
        present=SimpleNamespace(driver=driver, number=4), draining=2, standby=SimpleNamespace(number=3)
    )

    async def poll():
        return Outcome("changed", "now served: digits 2", {"digits": 2})

    poller = SimpleNamespace(last=Outcome("unchanged", "nothing new", {}), seconds=30.0, poll=poll)
    refresher = SimpleNamespace(
        poller=poller, generations=generations, release=9, trials=None, watcher=None, drift=DriftCounter()
    )
    return Endpoint(
        SimpleNamespace(alias="champion", device="cuda:1", watch_burn_in=100), refresher, None, lambda: 12.5
    ), driver


def test_a_deadline_counts_from_the_socket_and_earlier_by_the_way_back_of_its_answer():
    served, _ = endpoint()

    async def counted(arrived: float) -> Served[float]:
        return Served(arrived, ())

    async def main() -> None:
        assert await served.route_trial(counted, 12.0, 0.2) == 12.0, "nothing is known of answers yet"
        now = asyncio.get_running_loop().time()
        for _ in range(100):
            served.front_door.answered(0.05, now)
        assert await served.route_trial(counted, 12.0, 0.2) == pytest.approx(11.95, abs=0.01)
        for _ in range(200):
            await served.route_trial(counted, 12.0, 0.2)
        assert served.front_door.usual_deadline == pytest.approx(0.2, rel=0.01)

    asyncio.run(main())


def test_the_status_names_release_generation_devices_refresh_and_what_waits():
    served, _ = endpoint()
    assert served.common_status() == {
        "ready": True,
        "alias": "champion",
        "release": 9,
        "generation": 4,
        "device": "cuda:1",
        "leaving": 2,
        "standby": 3,
        "trial": None,
        "watch": None,
        "refresh": Outcome("unchanged", "nothing new", {}).to_dict(),
        "refresh_seconds": 30.0,
        "waiting": 3,
        "pending": 7,
    }


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
