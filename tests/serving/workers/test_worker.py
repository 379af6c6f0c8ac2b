"""A process worker runs its model in another process, and survives that process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import asynccontextmanager, nullcontext
from functools import partial

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.fallbacks import Fallback
from pliant.serving.workers.device_process import SHARED_BYTES
from pliant.serving.workers.worker import ModelError, ProcessWorker, Worker
from tests.fixtures.fakes import EchoModel


@pytest.fixture
def worker():
    """A started worker of the model that echoes."""

    @asynccontextmanager
    async def started():
        worker = ProcessWorker(EchoModel)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    return started()


async def test_large_arrays_arrive_whole_whatever_came_before_them(worker):
    """Large arrays lie in shared memory, which grows; small ones go through the socket."""
    rng = np.random.default_rng(0)
    for size, count in ((8, 3), (300, 2), (8, 1), (500, 7), (100, 2), (1, 0)):
        arrays = [rng.integers(0, 256, (size, size, 3), dtype=np.uint8) for _ in range(count)]
        outputs, _ = await worker.run(0, arrays)
        for array, (back, *_) in zip(arrays, outputs, strict=True):
            np.testing.assert_array_equal(back, array)


async def test_a_process_that_dies_is_reported_at_once_and_one_that_is_stopped_is_not(worker):
    told = asyncio.Event()
    worker.on_end = told.set
    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(told.wait(), 120)
    told.clear()
    await worker.restart()
    await worker.stop()
    await worker.start()
    assert not told.is_set()


async def test_a_process_killed_during_a_launch_is_an_error_and_a_restart_brings_all_updates_back(worker):
    await worker.update("task b", partial(EchoModel, ("task b",)))
    launch = asyncio.create_task(worker.run(0, ["hang"]))
    await asyncio.sleep(0.1)
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="ended during run"):
        await launch
    await worker.update("task c", partial(EchoModel, ("task b", "task c")))  # meets a dead process
    await worker.restart()
    assert (await worker.run(0, ["x"]))[0] == [("x", 0, ("task b", "task c"))]


def test_the_process_ends_when_its_parent_dies():
    script = """
        import asyncio, os
        from pliant.serving.workers.worker import ProcessWorker
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


# A worker whose device is a fake, in virtual time


class Calling(Worker):
    """Calls nobody: each call is answered by `answers[verb]`, an error, seconds that it takes for ever, or a value."""

    def __init__(self, **answers) -> None:
        super().__init__("first build", 30.0)
        self.answers, self.calls = answers, []

    async def _call(self, verb, *arguments):
        self.calls.append((verb, *arguments))
        answer = self.answers.get(verb)
        if isinstance(answer, Exception):
            raise answer
        if answer == "hang":
            await asyncio.sleep(1e6)
        return answer

    async def start(self) -> None:
        self.calls.append("start")

    def kill(self) -> None:
        self.calls.append("kill")

    async def stop(self) -> None:
        self.calls.append("stop")


@pytest.mark.parametrize(
    ("answer", "error", "build", "kills"),
    [
        (None, None, "new build", 0),
        (ModelError("a bad update"), ModelError, "first build", 0),
        (WorkerError("it has ended"), None, "new build", 0),
        ("hang", None, "new build", 1),
    ],
)
@pytest.mark.virtual
async def test_an_update_is_built_in_unless_the_model_refuses_it(answer, error, build, kills):
    worker = Calling(update=answer)
    with pytest.raises(error) if error else nullcontext():
        await worker.update("value", "new build")
    assert worker.build == build
    assert worker.calls == [("update", "value"), *["kill"] * kills]
    assert asyncio.get_running_loop().time() == 30.0 * kills


# A process of which only the socket is real


async def test_a_launch_that_is_sent_ahead_runs_behind_the_present_one_and_its_answer_comes_next(worker):
    large = np.full(SHARED_BYTES, 1, np.uint8)
    running = asyncio.create_task(worker.run(1, [large, "a"]))
    await asyncio.sleep(0)
    assert worker.send_ahead(2, [2 * large, "b"]) and not worker.send_ahead(3, ["c"])
    (first, second), _ = await running
    (third, fourth), _ = await worker.run(2, [2 * large, "b"])
    assert (second, fourth) == (("a", 1, ()), ("b", 2, ()))
    assert first[0].max() == 1 and third[0].min() == 2
    assert (await worker.run(4, ["d"]))[0] == [("d", 4, ())]


async def test_fallbacks_are_logged_passed_on_and_kept_until_the_device_is_restarted(caplog):
    worker, passed_on = Calling(), []
    worker.on_fallback = passed_on.append
    fallback = Fallback("memory", "batches of 64 do not fit")
    assert worker._result((True, "value", (fallback,))) == "value"
    assert passed_on == list(worker.fallbacks) == [fallback]
    assert "a device process falls back: batches of 64 do not fit" in caplog.messages
    with pytest.raises(ModelError, match="no such task"):
        worker._result((False, "no such task", (fallback,)))
    assert len(worker.fallbacks) == 2, "a failed call tells them too"
    await worker.restart()
    assert not worker.fallbacks
