"""A spare takes the place of a worker that died or hung at once, and the former one stands by from then on."""

from __future__ import annotations

import asyncio

import pytest

from pliant.errors import InputError
from pliant.protocol import Finished, Launch
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.driver import Driver, loop_clock
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.workers.worker_slot import Spares
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


def test_a_number_below_zero_and_packing_are_refused_with_a_sentence():
    with pytest.raises(InputError, match="PLIANT_SPARE is -1"):
        CascadeSettings(spare=-1)
    with pytest.raises(InputError, match="a second one has no room"):
        PackingSettings(spare=1)


# Spares by themselves


def spares_test(test):
    """Run in virtual time with two spares that have been started, and what was made of them."""

    def wrapped():
        async def main():
            workers = [FakeWorker(build="build"), FakeWorker(build="build")]
            spares = Spares(workers)
            assert spares.ready == 0 and all(worker.calls == [] for worker in workers)
            spares.start()
            await asyncio.sleep(STARTED)
            assert spares.ready == 2
            await test(spares, workers)
            await spares.stop()
            assert len(asyncio.all_tasks()) == 1, "nothing of it goes on"

        run_virtually(main())

    wrapped.__name__ = test.__name__
    return wrapped


@spares_test
async def test_an_update_that_comes_while_a_spare_starts_starts_it_again_with_the_update(spares, workers):
    workers[0].die()
    await asyncio.sleep(0.1)
    await spares.update("task b", lambda _: "with b")
    assert (workers[0].build, workers[1].build) == ("with b", "build")
    assert ("update", "task b") not in workers[0].calls and workers[1].calls[-1] == ("update", "task b")
    await asyncio.sleep(0.5)
    assert spares.ready == 1, "it has the former model"
    await asyncio.sleep(0.5)
    assert spares.ready == 2 and workers[0].calls == ["restart"] * 3


@spares_test
async def test_a_spare_that_refuses_an_update_is_started_with_it(spares, workers):
    workers[1].refuses = "task b"
    await spares.update("task b", lambda _: "with b")
    assert (spares.ready, workers[0].build, workers[1].build) == (1, "build", "with b")
    await asyncio.sleep(STARTED)
    assert spares.ready == 2 and workers[1].calls == ["restart"] * 2
    spares.remember(lambda _: "with c")
    assert [worker.build for worker in workers] == ["with c"] * 2
