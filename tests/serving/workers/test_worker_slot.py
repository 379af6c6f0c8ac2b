"""A worker that dies while idle delays no request."""

from __future__ import annotations

import asyncio

from pliant.protocol import Failed, Finished, Launch
from serving.clock import loop_clock
from serving.driver import Driver
from serving.workers.worker import ModelError
from serving.workers.worker_slot import MAX_ERRORS, WorkerSlot
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


class Raising(FakeWorker):
    """Its model raises an error for every payload "bad"."""

    async def run(self, setting, payloads):
        if "bad" in payloads:
            raise ModelError("ValueError: bad")
        return await super().run(setting, payloads)


async def bad_launches(count: int) -> tuple[WorkerSlot, Raising, list[Failed]]:
    worker = Raising()
    slot = WorkerSlot(worker, 60.0, lambda: None)
    await slot.start()
    ends = [(await slot.carry_out(Launch(id, 0, (id,)), ["bad"]))[0] for id in range(count)]
    return slot, worker, ends


def test_an_error_of_the_model_fails_the_launch_and_leaves_the_process():
    async def main():
        slot, worker, (end,) = await bad_launches(1)
        assert end == Failed(0, "ValueError: bad", lost=False)
        assert slot.up and "kill" not in worker.calls
        assert isinstance((await slot.carry_out(Launch(1, 0, (1,)), ["x"]))[0], Finished)

    run_virtually(main())


def test_a_process_that_does_nothing_but_fail_is_restarted():
    async def main():
        slot, worker, ends = await bad_launches(MAX_ERRORS)
        assert [end.lost for end in ends] == [False] * (MAX_ERRORS - 1) + [True]
        assert not slot.up and worker.calls[-1] == "kill"

    run_virtually(main())


def test_successes_between_errors_of_the_model_keep_the_process():
    async def main():
        slot, _, _ = await bad_launches(MAX_ERRORS - 1)
        await slot.carry_out(Launch(99, 0, (1,)), ["x"])
        end, _ = await slot.carry_out(Launch(100, 0, (1,)), ["bad"])
        assert not end.lost and slot.up

    run_virtually(main())
