"""On each device: a device process answers as the CPU does, survives a lack of memory, and comes back after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from functools import partial

import numpy as np
import pytest

from pliant.errors import WorkerError
from pliant.packing.scheduling.policy import Rules
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import EngineBuild, EngineProcess
from pliant.serving.workers.devices import DevicePlan
from pliant.serving.workers.worker import ProcessWorker
from qa.gpu.processes import HUNGRY, HungryBuild, cases, on_worker
from tests.fixtures.packing.generators import CONTEXT, SCARCE, generated, prompts, submission, tiny_generator

pytestmark = pytest.mark.slow

SYSTEMS = ("tokens", "bins", "cascade")
START_SECONDS = 240.0


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    return cases(tmp_path_factory.mktemp("artifacts"))


def numbers(case, outputs):
    return np.array([case.numbers(output) for output in outputs])


async def answers(worker: ProcessWorker, case):
    return numbers(case, (await worker.run(case.setting, case.payloads))[0])


async def first_answers(worker: ProcessWorker, case):
    """Return the worker's answers, which are about those of the CPU: a GPU computes tokens in bfloat16 by default."""
    given = await answers(worker, case)
    expected = numbers(case, case.build("cpu")().run(case.setting, case.payloads)[0])
    assert np.median(np.abs(given - expected)) < 0.05
    return given


@pytest.mark.parametrize("system", SYSTEMS)
def test_after_a_lack_of_memory_a_process_answers_as_before(device, some, system):
    case = some[system]

    async def check(worker):
        before = await first_answers(worker, case)
        with pytest.raises(WorkerError, match=r"(?i)memory"):
            await worker.run(HUNGRY, [])
        np.testing.assert_allclose(await answers(worker, case), before, atol=1e-3)

    on_worker(HungryBuild(case.build(device), device), check)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_killed_process_is_noticed_and_its_successor_answers_as_before(device, some, system):
    case = some[system]

    async def check(worker):
        ended = asyncio.Event()
        worker.on_end = ended.set
        before = await first_answers(worker, case)
        os.kill(worker.pid, signal.SIGKILL)
        await asyncio.wait_for(ended.wait(), 60)
        with pytest.raises(WorkerError):
            await worker.run(case.setting, case.payloads)
        await worker.restart()
        np.testing.assert_allclose(await answers(worker, case), before, atol=1e-3)

    on_worker(case.build(device), check)


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generator")
    return folder, codec.save(tiny_generator(), folder)


def engine_build(generator, device: str, pages: int = 0) -> EngineBuild:
    folder, digest = generator
    memory = SCARCE if not pages else type(SCARCE)(pages, SCARCE.page_tokens)
    rules = Rules("paged", CONTEXT)
    return EngineBuild(folder, digest, memory, rules, DevicePlan(device, 1, None, ()), None)


async def texts_of(engine: EngineProcess, count: int) -> list[tuple[int, ...]]:
    """Return what the engine makes of some prompts."""
    texts: dict[int, list[int]] = {id: [] for id in range(count)}
    left, done = set(texts), asyncio.Event()

    def take(kind, value):
        for report in value if kind == "progress" else ():
            texts[report.id] += report.tokens
            if report.finished:
                left.discard(report.id)
        if not left:
            done.set()

    engine.on_message = take
    for id, ids in enumerate(prompts(count)):
        engine.send("submit", submission(id, ids))
    await asyncio.wait_for(done.wait(), 120)
    return [tuple(text) for text in texts.values()]


def test_a_killed_engine_is_noticed_and_its_successor_makes_the_same_texts(device, generator):
    expected = generated(tiny_generator(), prompts(6))

    async def main():
        engine, ended = EngineProcess(partial(engine_build, generator, device), START_SECONDS), asyncio.Event()
        engine.on_end = ended.set
        await engine.start()
        try:
            assert await texts_of(engine, 6) == expected
            for id, ids in enumerate(prompts(6)):
                engine.send("submit", submission(id, ids))
            os.kill(engine.pid, signal.SIGKILL)
            await asyncio.wait_for(ended.wait(), 60)
            await engine.start()
            assert await texts_of(engine, 6) == expected
        finally:
            await engine.stop()

    asyncio.run(main())


def test_a_lack_of_memory_at_the_start_of_an_engine_is_told_in_one_sentence(device, generator):
    async def main():
        engine = EngineProcess(partial(engine_build, generator, device, pages=1 << 36), START_SECONDS)
        with pytest.raises(WorkerError) as caught:
            await engine.start()
        assert "\n" not in str(caught.value) and "could not start" in str(caught.value)

    asyncio.run(main())
