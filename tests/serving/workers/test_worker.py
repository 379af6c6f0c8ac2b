"""A process worker runs its model in another process, and survives that process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.protocol import replay
from serving.clock import loop_clock
from serving.driver import Driver, Limits
from serving.workers.worker import ProcessWorker
from tests.fixtures.fakes import EchoModel, FifoScheduler, refuse_to_build


def on_worker(check, build=EchoModel):
    """Run `check(worker)` on a started worker."""

    async def main():
        worker = ProcessWorker(build)
        await worker.start()
        try:
            await check(worker)
        finally:
            await worker.stop()

    asyncio.run(main())


def test_launches_and_updates_reach_the_process():
    async def check(worker):
        assert worker.pid != os.getpid()
        assert await worker.run(-5, ["x", "y"]) == ([("x", -5, ()), ("y", -5, ())], 0.001)
        await worker.update("task b", EchoModel)
        assert (await worker.run(0, ["z"]))[0] == [("z", 0, ("task b",))]

    on_worker(check)


def test_large_arrays_arrive_whole_whatever_came_before_them():
    """Large arrays lie in shared memory, which grows; small ones go through the socket."""

    async def check(worker):
        rng = np.random.default_rng(0)
        for size, count in ((8, 3), (300, 2), (8, 1), (500, 7), (100, 2), (1, 0)):
            arrays = [rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for _ in range(count)]
            outputs, _ = await worker.run(0, arrays)
            for array, (back, *_) in zip(arrays, outputs, strict=True):
                np.testing.assert_array_equal(back, array)

    on_worker(check)


def test_a_load_takes_the_seconds_that_the_device_says():
    async def check(worker):
        assert 0.01 <= await worker.load(2) < 5
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("model 2",))]

    on_worker(check)


def test_a_process_that_dies_is_reported_at_once_and_one_that_is_stopped_is_not():
    async def check(worker):
        told = asyncio.Event()
        worker.on_end = told.set
        os.kill(worker.pid, signal.SIGKILL)
        await asyncio.wait_for(told.wait(), 120)
        told.clear()
        await worker.restart()
        await worker.stop()
        await worker.start()
        assert not told.is_set()

    on_worker(check)


def test_an_exception_in_the_model_is_an_error_and_the_process_lives_on():
    async def check(worker):
        with pytest.raises(WorkerError, match="ValueError: no such payload"):
            await worker.run(0, ["raise"])
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())]

    on_worker(check)


class BrokenCuda:
    """Stands for torch in a process whose GPU fails every call after an error."""

    class cuda:  # noqa: N801  torch's name
        @staticmethod
        def is_initialized() -> bool:
            return True

        @staticmethod
        def synchronize() -> None:
            raise RuntimeError("device-side assert triggered")


class FailsWithItsDevice(EchoModel):
    def run(self, setting, payloads):
        if "raise" in payloads:
            sys.modules["torch"] = BrokenCuda
        return super().run(setting, payloads)


def test_a_process_whose_device_fails_with_the_model_ends():
    async def check(worker):
        with pytest.raises(WorkerError, match="ended during run"):
            await worker.run(0, ["raise"])

    on_worker(check, FailsWithItsDevice)


def test_a_process_killed_during_a_launch_is_an_error_and_a_restart_brings_all_updates_back():
    async def check(worker):
        await worker.update("task b", partial(EchoModel, ("task b",)))
        launch = asyncio.create_task(worker.run(0, ["hang"]))
        await asyncio.sleep(0.1)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="ended during run"):
            await launch
        await worker.update("task c", partial(EchoModel, ("task b", "task c")))  # meets a dead process
        await worker.restart()
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("task b", "task c"))]

    on_worker(check)


def test_a_refused_update_is_forgotten():
    async def check(worker):
        with pytest.raises(WorkerError, match="a bad update"):
            await worker.update("bad", partial(EchoModel, ("bad",)))
        await worker.restart()
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())]

    on_worker(check)


def test_signals_to_the_whole_family_do_not_end_the_process():
    async def check(worker):
        os.kill(worker.pid, signal.SIGTERM)
        os.kill(worker.pid, signal.SIGINT)
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())]

    on_worker(check)


def test_a_model_that_cannot_be_built_says_why():
    async def main():
        worker = ProcessWorker(refuse_to_build)
        with pytest.raises(WorkerError, match=r"^the weights are missing$"):
            await worker.start()
        await worker.stop()

    asyncio.run(main())


def test_the_process_ends_when_its_parent_dies():
    script = """
        import asyncio, os
        from serving.workers.worker import ProcessWorker
        from tests.fixtures.fakes import EchoModel
        async def main():
            worker = ProcessWorker(EchoModel)
            await worker.start()
            print(worker.pid, flush=True)
            os.kill(os.getpid(), 9)
        asyncio.run(main())
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    parent.communicate(timeout=300)  # returns once the last holder of the pipe has ended, which is the device process
    assert parent.returncode == -signal.SIGKILL


def test_a_driver_outlives_a_killed_device_process():
    async def main():
        journal = []
        worker = ProcessWorker(EchoModel)
        driver = Driver(FifoScheduler(), [worker], journal.append, loop_clock(), Limits(launch=10.0))
        await driver.start()
        assert (await driver.submit("a", 5.0, 1.0, "x")).output[0] == "x"
        os.kill(worker.pid, signal.SIGKILL)
        assert (await driver.submit("a", 20.0, 1.0, "y")).output[0] == "y"
        await driver.stop()
        assert replay(FifoScheduler(), journal) == journal

    asyncio.run(main())
