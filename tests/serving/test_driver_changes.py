"""The scheduler's knowledge is replaced between batches and workers restart, without a waiting request being rejected."""

from __future__ import annotations

import asyncio

import pytest

from pliant.errors import InputError, SchedulerError
from pliant.protocol import Changed, Limited, replay
from tests.fixtures.fakes import FifoScheduler, run_virtually
from tests.serving.test_driver import Bench


async def started(scheduler=None) -> Bench:
    bench = Bench(scheduler=scheduler)
    await bench.driver.start()
    return bench


def test_facts_of_the_start_come_first_and_later_ones_in_their_turn():
    async def main():
        bench = Bench(facts={"facts": 1})
        await bench.driver.start()
        running = asyncio.create_task(bench.ask("x", "y"))  # y waits until x is done
        await asyncio.sleep(0.01)
        bench.driver.change({"facts": 2})
        assert [answer.output for answer in await running] == ["x", "y"]
        assert bench.scheduler.facts == [{"facts": 1}, {"facts": 2}]
        assert bench.journal[0].event == Changed({"facts": 1})
        await bench.driver.stop()
        assert replay(FifoScheduler(), bench.journal) == bench.journal

    run_virtually(main())


def test_facts_that_the_scheduler_refuses_leave_no_trace():
    async def main():
        bench = await started()
        bench.driver.change({"facts": 1})
        bench.scheduler.refuses = "bad"
        with pytest.raises(InputError, match="facts is bad"):
            bench.driver.change({"facts": "bad"})
        assert [entry.event for entry in bench.journal] == [Changed({"facts": 1})]
        assert (await bench.ask("x"))[0].output == "x"
        assert bench.driver.alive
        await bench.driver.stop()

    run_virtually(main())


class BrokenByFacts(FifoScheduler):
    def handle(self, event, now):
        if isinstance(event, Changed):
            raise KeyError("a bug")
        return super().handle(event, now)


def test_a_scheduler_that_breaks_over_facts_leaves_nobody_waiting():
    async def main():
        bench = await started(BrokenByFacts())
        asked = asyncio.create_task(bench.ask("x", "y"))
        await asyncio.sleep(0.01)
        with pytest.raises(SchedulerError, match="KeyError"):
            bench.driver.change({})
        assert all(isinstance(answer, SchedulerError) for answer in await asked)
        with pytest.raises(SchedulerError):
            bench.driver.change({})
        await bench.driver.stop()

    run_virtually(main())


def test_a_device_that_lacks_memory_is_told_to_the_scheduler_once_and_behind_the_facts():
    async def main():
        bench = Bench(facts={"facts": 1})
        bench.driver.limit(-5, 16)  # as the worker starts
        await bench.driver.start()
        for batch in (8, 8, 16):
            bench.driver.limit(-5, batch)
        bench.driver.limit(0, 16)
        assert [entry.event for entry in bench.journal] == [
            Changed({"facts": 1}),
            Limited(-5, 16),
            Limited(-5, 8),
            Limited(0, 16),
        ]
        await bench.driver.stop()
        assert replay(FifoScheduler(), bench.journal) == bench.journal

    run_virtually(main())
