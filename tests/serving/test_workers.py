"""A process worker runs its model elsewhere, and survives that process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from pliant.errors import WorkerError
from pliant.protocol import replay
from serving.driver import Driver, Limits, loop_clock
from serving.workers import ProcessWorker
from tests.serving.fakes import EchoModel, FifoScheduler, refuse_to_build


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
        await worker.update("task b")
        assert (await worker.run(0, ["z"]))[0] == [("z", 0, ("task b",))]

    on_worker(check)


def test_an_exception_in_the_model_is_an_error_and_the_process_lives_on():
    async def check(worker):
        with pytest.raises(WorkerError, match="ValueError: no such payload"):
            await worker.run(0, ["raise"])
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ())]

    on_worker(check)


def test_a_process_killed_during_a_launch_is_an_error_and_a_restart_brings_all_updates_back():
    async def check(worker):
        await worker.update("task b")
        launch = asyncio.create_task(worker.run(0, ["hang"]))
        await asyncio.sleep(0.1)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="ended during run"):
            await launch
        await worker.update("task c")  # meets a dead process
        await worker.restart()
        assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("task b", "task c"))]

    on_worker(check)


def test_a_refused_update_is_forgotten():
    async def check(worker):
        with pytest.raises(WorkerError, match="a bad update"):
            await worker.update("bad")
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
        from serving.workers import ProcessWorker
        from tests.serving.fakes import EchoModel
        async def main():
            worker = ProcessWorker(EchoModel)
            await worker.start()
            print(worker.pid, flush=True)
            os.kill(os.getpid(), 9)
        asyncio.run(main())
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE)
    parent.communicate(timeout=30)  # returns once the last holder of the pipe has ended, which is the device process
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
