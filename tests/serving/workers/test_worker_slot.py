"""A worker that dies while idle delays no request."""

from __future__ import annotations

import asyncio

from serving.clock import loop_clock
from serving.driver import Driver
from serving.workers.worker_slot import WorkerSlot
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually


def test_a_request_does_not_wait_for_a_worker_that_died_idle_where_another_is_free():
    async def main():
        workers = [FakeWorker(), FakeWorker()]
        driver = Driver(FifoScheduler(2), workers, [].append, loop_clock())
        await driver.start()
        workers[0].failing_restarts = 3  # 0.5 s each
        workers[0].die()
        await asyncio.sleep(0.1)
        answers = [await driver.submit("a", 0.2, 1.0, number) for number in range(3)]
        assert [answer.output for answer in answers] == [0, 1, 2]
        assert all(answer.on_time for answer in answers)
        await asyncio.sleep(10)
        assert workers[0].calls.count("restart") >= 4
        await driver.submit("a", 0.2, 1.0, "x")
        await driver.stop()

    run_virtually(main())


def test_an_update_whose_caller_leaves_reaches_the_worker_whole():
    async def main():
        begun, ended = [], []

        class Worker(FakeWorker):
            async def update(self, value, build):
                begun.append(value)
                await asyncio.sleep(1)
                ended.append((value, build))

        slot = WorkerSlot(Worker(), 60.0, lambda: None)
        update = asyncio.create_task(slot.update("value", "build"))
        await asyncio.sleep(0.5)
        update.cancel()
        await asyncio.sleep(1)
        assert (begun, ended) == (["value"], [("value", "build")])

    run_virtually(main())
