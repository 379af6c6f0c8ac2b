"""A launch that takes far longer than its profile counts as hung; a slow one, a first one and a held-up loop do not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from pliant.errors import WorkerError
from pliant.protocol import Failed, Finished, Launch
from pliant.serving.workers.launch_limit import FACTOR, FIRST, FLOOR, IDLE, LaunchLimit, within
from pliant.serving.workers.worker_slot import WorkerSlot
from tests.fixtures.fakes import FakeWorker, run_virtually

MOST = 60.0


def launch(expected: float = 0.01, setting: int = 3, id: int = 0, kind: str = "run") -> Launch:
    return Launch(id, 0, (1,), setting, kind, expected)


def test_a_limit_is_a_multiple_of_the_profile_within_its_floor_and_the_configured_most():
    limit = LaunchLimit(MOST)
    limit.finished(launch(), 0.0)
    assert limit.seconds(launch(0.01), 1.0) == FLOOR
    assert limit.seconds(launch(1.5), 1.0) == FACTOR * 1.5
    assert limit.seconds(launch(20.0), 1.0) == MOST
    assert limit.seconds(launch(0.0), 1.0) == MOST  # nothing is expected
    assert LaunchLimit(0.5).seconds(launch(0.01), 1.0) == 0.5


def test_the_first_launch_of_a_setting_and_the_first_after_a_pause_may_take_longer():
    limit = LaunchLimit(MOST)
    assert limit.seconds(launch(), 0.0) == FIRST
    limit.finished(launch(), 5.0)
    assert limit.seconds(launch(), 6.0) == FLOOR
    assert limit.seconds(launch(setting=4), 6.0) == FIRST
    assert limit.seconds(launch(), 5.0 + IDLE) == FIRST
    limit.started()
    assert limit.seconds(launch(), 6.0) == FIRST


async def slot_that_has_run() -> tuple[WorkerSlot, FakeWorker]:
    worker = FakeWorker()
    slot = WorkerSlot(worker, MOST, lambda: None)
    await slot.start()
    assert isinstance((await slot.carry_out(launch(), ["x"]))[0], Finished)
    return slot, worker


def test_a_hang_is_noticed_after_the_floor_not_after_the_configured_limit():
    async def main():
        slot, worker = await slot_that_has_run()
        loop = asyncio.get_running_loop()
        began = loop.time()
        event, _ = await slot.carry_out(launch(id=1), ["hang"])
        assert loop.time() - began == pytest.approx(FLOOR)
        assert event == Failed(1, "it was still running after 2 s")
        assert worker.calls[-1] == "kill"

    run_virtually(main())


def test_after_a_restart_the_first_launch_has_more_time_again():
    async def main():
        slot, worker = await slot_that_has_run()
        await slot.carry_out(launch(id=1), ["hang"])
        await slot.carry_out(launch(0.0, id=2, kind="restart"), [])
        worker.seconds = 5.0
        assert isinstance((await slot.carry_out(launch(id=3), ["x"]))[0], Finished)
        assert isinstance((await slot.carry_out(launch(id=4), ["x"]))[0], Failed)

    run_virtually(main())


def test_a_loop_that_was_held_up_still_finds_the_result_that_came_meanwhile():
    """A machine that stands still for longer than the limit loses no worker."""

    async def main():
        loop = asyncio.get_running_loop()
        came: asyncio.Future[int] = loop.create_future()

        async def call() -> int:
            return await came

        async def hold_up():
            time.sleep(0.3)  # nothing runs meanwhile
            loop.call_later(0.01, came.set_result, 7)

        holding = asyncio.create_task(hold_up())
        assert await within(0.2, call()) == 7
        await holding

    asyncio.run(main())


CALLS = """
import asyncio, gc
from pliant.serving.workers.launch_limit import within

async def call():
    await asyncio.sleep(0)
    return 7

async def main():
    gc.collect()
    gc.disable()
    for _ in range(20):
        assert await within(0.5, call()) == 7
    print(gc.collect())

asyncio.run(main())
"""


def test_nothing_of_a_call_waits_for_the_garbage_collector():
    """Launches are many, and a collection of all objects takes hundreds of milliseconds.

    In a process of its own, as the threads and finalizers that other tests left make garbage meanwhile.
    """
    run = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=True)
    assert run.stdout == "0\n"


def test_a_call_that_has_ended_leaves_no_timer():
    async def main():
        async def call() -> int:
            await asyncio.sleep(0)
            return 7

        for _ in range(3):
            await within(0.5, call())
        assert all(timer.cancelled() for timer in asyncio.get_running_loop()._scheduled)

    asyncio.run(main())


def test_a_call_that_takes_too_long_is_cancelled_and_an_error_passes_on():
    async def main():
        task = asyncio.ensure_future(asyncio.sleep(1e6))

        async def call():
            await task

        with pytest.raises(TimeoutError):
            await within(0.5, call())
        await asyncio.sleep(0)
        assert task.cancelled()

        async def fail():
            raise WorkerError("the device process ended during run")

        with pytest.raises(WorkerError, match="ended during run"):
            await within(0.5, fail())

    run_virtually(main())
