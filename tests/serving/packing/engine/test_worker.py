"""The engine's process: it is spoken to and speaks, dies with its engine, and a service gets all its tokens nevertheless."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pliant.errors import WorkerError
from serving.packing.engine.engine import EngineDriver, Limits
from serving.packing.engine.engine_process import joined
from serving.packing.engine.worker import ProcessWorker
from tests.fixtures.packing.fakes import TALE, FakeBuild
from tests.serving.packing.engine.test_engine import flight, until

LIMITS = Limits(retry=0.05)


def driving(test, build: FakeBuild, limits: Limits = LIMITS):
    async def run():
        worker = ProcessWorker(lambda: build)
        driver = EngineDriver(worker, asyncio.get_running_loop().time, limits)
        await driver.start()
        try:
            await asyncio.wait_for(test(driver, worker), 300)
        finally:
            await driver.stop()

    asyncio.run(run())


def test_tokens_come_out_of_a_process_and_its_books_can_be_seen():
    async def test(driver, worker):
        flights = [flight(driver) for _ in range(20)]
        driver.submit(flights)
        await until(lambda: all(one.finish for one in flights))
        assert {one.writer.take() for one in flights} == {TALE}
        looked = await driver.look()
        assert (looked.books, looked.status.pages_used) == ("", 0) and looked.status.iterations > 0
        gone = flight(driver)
        driver.submit([gone])
        await until(lambda: gone.tokens)
        driver.cancel(gone)
        await until(lambda: driver.pending == 0)
        assert driver.status.pages == 64  # told now and then without being asked

    driving(test, FakeBuild())


@pytest.mark.parametrize("trouble", ["fail", "hang"])
def test_an_engine_that_fails_or_hangs_is_replaced_with_its_process(tmp_path, trouble):
    async def test(driver, worker):
        first = worker.pid
        flights = [flight(driver), flight(driver, limit=40, temperature=1.0, seed=2)]
        driver.submit(flights)
        await until(lambda: all(one.finish for one in flights))
        assert worker.pid != first and [one.crashes for one in flights] == [1, 1]
        assert flights[0].writer.take() == TALE and len(flights[1].tokens) == 40

    driving(test, FakeBuild(trouble=trouble, after=6, once=tmp_path / "once"), Limits(silence=1.5, retry=0.05))


def test_a_killed_process_is_replaced_and_ends_with_the_service():
    async def test(driver, worker):
        first = worker.pid
        one = flight(driver)
        driver.submit([one])
        await until(lambda: one.tokens)
        os.kill(first, signal.SIGKILL)
        await until(lambda: one.finish)
        assert one.writer.take() == TALE and worker.pid != first

    driving(test, FakeBuild())


def test_a_process_that_cannot_build_its_engine_says_why():
    async def run():
        worker = ProcessWorker(lambda: FakeBuild(trouble="refuse"))
        with pytest.raises(WorkerError, match="could not start: memory is 0, but must be at least 1"):
            await worker.start()
        assert worker.pid is None

    asyncio.run(run())


def test_news_that_gathered_goes_as_one_message():
    told = [("progress", [1]), ("progress", [2, 3]), ("status", "s"), ("progress", [4])]
    assert joined(told) == [("progress", [1, 2, 3]), ("status", "s"), ("progress", [4])]
