"""The engine's process exchanges messages and dies with its engine; the service gets all tokens nevertheless."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from pliant.errors import WorkerError
from pliant.serving.packing.engine.engine import EngineDriver, EngineLimits
from pliant.serving.packing.engine.engine_process import EngineProcess
from tests.fixtures.packing.fakes import TALE, FakeBuild, submit
from tests.serving.packing.engine.test_engine import new_output, until

LIMITS = EngineLimits(retry=0.05)


def driving(test, build: FakeBuild, limits: EngineLimits = LIMITS):
    async def run():
        worker = EngineProcess(lambda: build)
        driver = EngineDriver(worker, asyncio.get_running_loop().time, limits)
        await driver.start()
        try:
            await asyncio.wait_for(test(driver, worker), 300)
        finally:
            await driver.stop()

    asyncio.run(run())


def test_a_process_sends_tokens_and_reports_its_accounting_of_pages():
    async def test(driver, worker):
        outputs = [new_output(driver) for _ in range(20)]
        submit(driver, outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE}
        report = await driver.poll()
        assert (report.accounting_error, report.status.pages_used) == ("", 0) and report.status.iterations > 0
        gone = new_output(driver)
        submit(driver, [gone])
        await until(lambda: gone.tokens)
        driver.cancel(gone)
        await until(lambda: driver.pending == 0)
        assert driver.status.pages == 64  # told now and then without being asked

    driving(test, FakeBuild())


def test_a_process_that_lacks_memory_is_replaced_by_one_with_fewer_sequences(tmp_path):
    async def test(driver, worker):
        driver.sequences.value = driver.sequences.planned = 64
        outputs = [new_output(driver) for _ in range(8)]
        submit(driver, outputs)
        await until(lambda: all(one.finish for one in outputs))
        assert {one.writer.take() for one in outputs} == {TALE} and {one.crashes for one in outputs} == {0}
        assert (driver.sequences.value, driver.sequences.exhausted) == (4, 1)

    driving(test, FakeBuild(trouble="memory", after=6, once=tmp_path / "once"))


def test_a_killed_process_is_replaced_and_ends_with_the_service():
    async def test(driver, worker):
        first = worker.pid
        one = new_output(driver)
        submit(driver, [one])
        await until(lambda: one.tokens)
        os.kill(first, signal.SIGKILL)
        await until(lambda: one.finish)
        assert one.writer.take() == TALE and worker.pid != first

    driving(test, FakeBuild())


class Exiting:
    """A build that ends its process."""

    def __call__(self, _deliver):
        os._exit(1)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (FakeBuild(trouble="refuse"), "could not start: memory is 0, but must be at least 1"),
        (Exiting(), "ended before it was ready"),
    ],
)
def test_a_start_that_fails_leaves_no_process_and_says_how(build, sentence):
    async def run():
        worker = EngineProcess(lambda: build)
        with pytest.raises(WorkerError, match=sentence):
            await worker.start()
        assert worker.pid is None and len(asyncio.all_tasks()) == 1

    asyncio.run(run())
