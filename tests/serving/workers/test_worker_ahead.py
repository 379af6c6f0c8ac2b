"""A launch that is sent to a device process while another one runs there."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.serving.workers.device_process import SHARED_BYTES
from tests.serving.workers.test_worker import on_worker


def test_a_launch_that_is_sent_ahead_runs_behind_the_present_one_and_its_answer_comes_next():
    async def check(worker):
        large = np.full(SHARED_BYTES, 1, np.uint8)
        running = asyncio.create_task(worker.run(1, [large, "a"]))
        await asyncio.sleep(0)
        assert worker.send_ahead(2, [2 * large, "b"]) and not worker.send_ahead(3, ["c"])
        (first, second), _ = await running
        (third, fourth), _ = await worker.run(2, [2 * large, "b"])
        assert (second, fourth) == (("a", 1, ()), ("b", 2, ()))
        assert first[0].max() == 1 and third[0].min() == 2
        assert (await worker.run(4, ["d"]))[0] == [("d", 4, ())]

    on_worker(check)


def test_what_was_sent_ahead_is_forgotten_with_the_process():
    async def check(worker):
        running = asyncio.create_task(worker.run(0, ["hang"]))
        await asyncio.sleep(0)
        assert worker.send_ahead(0, ["b"])
        worker.kill()
        with pytest.raises(WorkerError, match="ended during run"):
            await running
        await worker.restart()
        assert (await worker.run(0, ["c"]))[0] == [("c", 0, ())]

    on_worker(check)
