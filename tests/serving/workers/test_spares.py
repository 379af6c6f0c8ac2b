"""A spare takes the place of a worker that died or hung at once, and the former one stands by from then on."""

from __future__ import annotations

import asyncio

import pytest

from pliant.errors import InputError
from pliant.protocol import Finished, Launch
from serving.cascade.settings import CascadeSettings
from serving.clock import loop_clock
from serving.driver import Driver
from serving.lifecycle.assembly import spare_builds
from serving.packing.settings import PackingSettings
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually

STARTED = 0.6  # seconds in which a fake worker has started


class Bench:
    def __init__(self, spares: int = 1) -> None:
        self.journal = []
        self.worker, self.spares = FakeWorker(), [FakeWorker() for _ in range(spares)]
        self.driver = Driver(FifoScheduler(), [self.worker], self.journal.append, loop_clock(), spares=self.spares)

    async def start(self) -> Driver:
        await self.driver.start()
        assert self.driver.ready, "nobody waits for spares"
        await asyncio.sleep(STARTED)
        assert self.driver.spares == len(self.spares)
        return self.driver

    def restart_seconds(self) -> list[float]:
        """Of each restart: from its launch to its end."""
        begun = {a.id: e.now for e in self.journal for a in e.actions if isinstance(a, Launch) and a.kind == "restart"}
        return [
            e.now - begun[e.event.launch]
            for e in self.journal
            if isinstance(e.event, Finished) and e.event.launch in begun
        ]


def test_a_worker_that_dies_during_a_launch_is_replaced_at_once():
    async def main():
        bench = Bench()
        driver = await bench.start()
        asked = asyncio.create_task(driver.submit("a", 0.1, 1.0, "x"))
        await asyncio.sleep(0.001)
        bench.worker.dead = True
        answer = await asked
        assert answer.output == "x" and answer.on_time
        assert bench.restart_seconds() == [pytest.approx(0.0)]
        assert ("x",) in bench.spares[0].calls
        await asyncio.sleep(STARTED)
        assert driver.spares == 1, "the former worker stands by"
        bench.spares[0].die()
        assert (await driver.submit("a", 0.1, 1.0, "y")).output == "y"
        assert bench.worker.calls[-1] == ("y",)
        await driver.stop()
        assert bench.worker.calls[-1] == bench.spares[0].calls[-1] == "stop"

    run_virtually(main())


def test_a_worker_that_dies_idle_is_replaced_before_anybody_asks():
    async def main():
        bench = Bench()
        driver = await bench.start()
        bench.worker.die()
        await asyncio.sleep(0.001)
        assert driver.ready
        assert (await driver.submit("a", 0.1, 1.0, "x")).on_time
        await driver.stop()

    run_virtually(main())


def test_without_a_spare_that_is_ready_the_worker_itself_is_restarted():
    async def main():
        bench = Bench()
        driver = await bench.start()
        bench.spares[0].failing_restarts = 100
        bench.spares[0].die()
        await asyncio.sleep(0.001)
        assert driver.spares == 0
        bench.worker.die()
        assert (await driver.submit("a", 5.0, 1.0, "x")).output == "x"
        assert bench.worker.calls == ["start", "restart", ("x",)]
        bench.spares[0].failing_restarts = 0
        await asyncio.sleep(5)
        assert driver.spares == 1
        await driver.stop()

    run_virtually(main())


def test_a_spare_of_another_build_stays_where_it_is():
    async def main():
        bench = Bench()
        bench.spares[0].build = "another device"
        driver = await bench.start()
        bench.worker.die()
        await asyncio.sleep(STARTED)
        assert bench.worker.calls == ["start", "restart"]
        assert driver.spares == 1
        await driver.stop()

    run_virtually(main())


def test_updates_reach_spares_that_stand_by_and_those_that_start():
    async def main():
        bench = Bench(spares=2)
        driver = await bench.start()
        bench.spares[1].die()
        await driver.update("task b", None)
        assert bench.spares[0].calls[-1] == ("update", "task b")
        assert ("update", "task b") not in bench.spares[1].calls
        driver.remember("with b")
        assert [spare.build for spare in bench.spares] == ["with b"] * 2
        await driver.stop()

    run_virtually(main())


def test_a_spare_that_is_not_ready_or_refuses_an_update_is_started_with_it():
    async def main():
        bench = Bench(spares=2)
        driver = await bench.start()
        bench.spares[0].refuses = "task b"
        bench.spares[1].die()
        await driver.update("task b", "with b")
        assert [spare.build for spare in bench.spares] == ["with b"] * 2
        await driver.stop()

    run_virtually(main())


def test_spares_are_of_every_kind_of_worker_in_turn():
    assert spare_builds(["cpu", "cpu"], 2) == ["cpu", "cpu"]
    assert spare_builds(["cuda:0", "cuda:1"], 3) == ["cuda:0", "cuda:1", "cuda:0"]
    assert spare_builds(["cpu"], 0) == []


def test_a_number_below_zero_and_packing_are_refused_with_a_sentence():
    with pytest.raises(InputError, match="PLIANT_SPARE is -1"):
        CascadeSettings(spare=-1)
    with pytest.raises(InputError, match="a second one has no room"):
        PackingSettings(spare=1)
