"""On each device: a device process answers as the CPU does, survives a lack of memory, and comes back after a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from pliant.bins.artifact import Shape
from pliant.errors import WorkerError
from pliant.packing.scheduling.policy import Rules
from pliant.registry import codec
from pliant.serving.bins.messages import BinsBuild, StreamBuild
from pliant.serving.cascade.messages import CascadeBuild, ModelBuild
from pliant.serving.packing.engine.engine_process import EngineBuild, EngineProcess
from pliant.serving.tokens.catalog import ServedTask, TokensBuild
from pliant.serving.workers.devices import BuildPlan, DevicePlan
from pliant.serving.workers.worker import ProcessWorker
from tests.fixtures.bins.encoders import random_payload, tiny_encoder
from tests.fixtures.cascade.classifiers import tiny_classifier
from tests.fixtures.packing.generators import CONTEXT, SCARCE, generated, prompts, submission, tiny_generator
from tests.fixtures.tokens.samples import random_images, tiny_backbone, tiny_task

pytestmark = pytest.mark.slow

SYSTEMS = ("tokens", "bins", "cascade")
START_SECONDS = 240.0
HUNGRY = -1  # the setting of a launch that asks for too much memory
TOO_MUCH = 1 << 50  # bytes


@dataclass(frozen=True, slots=True)
class HungryBuild:
    """Makes the model of another build; a launch at the setting HUNGRY runs out of the device's memory."""

    build: BuildPlan
    device: str

    def __call__(self) -> HungryModel:
        return HungryModel(self.build(), self.device)


class HungryModel:
    def __init__(self, model: Any, device: str) -> None:
        self._model, self._device = model, device

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        if setting == HUNGRY:
            torch.empty(TOO_MUCH, dtype=torch.uint8, device=self._device)
        return self._model.run(setting, payloads)


@dataclass(frozen=True, slots=True)
class Case:
    """A build by device, a launch of it, and the numbers of a launch's outputs."""

    build: Callable[[str], BuildPlan]
    setting: int
    payloads: Sequence[Any]
    numbers: Callable[[Any], Any]

    def read(self, outputs):
        return np.array([self.numbers(output) for output in outputs])

    async def answers(self, worker: ProcessWorker):
        return self.read((await worker.run(self.setting, self.payloads))[0])

    async def first_answers(self, worker: ProcessWorker):
        """Return the worker's answers, which are about those of the CPU: a GPU computes tokens in bfloat16 by default."""
        given = await self.answers(worker)
        expected = self.read(self.build("cpu")().run(self.setting, self.payloads)[0])
        assert np.median(np.abs(given - expected)) < 0.05
        return given


@pytest.fixture(scope="module")
def some(tmp_path_factory) -> dict[str, Case]:
    """A case of each system whose device process answers launches."""
    tokens, bins, cascade = (tmp_path_factory.mktemp(system) for system in SYSTEMS)
    backbone, encoder = codec.save(tiny_backbone(), tokens), codec.save(tiny_encoder(), bins)
    tasks = (ServedTask(tiny_task("a", "xyz", backbone), 1, "digest of a"),)
    models = (ModelBuild(0, cascade, codec.save(tiny_classifier(), cascade), importance=True),)
    shapes = (Shape(8, 1), Shape(40, 2), Shape(40, 4, dynamic=True))

    def plan(device: str) -> DevicePlan:
        return DevicePlan(device, 1, None, (1, 2))

    def texts(*lengths: int) -> list[Any]:
        return [random_payload(np.random.default_rng(length), length) for length in lengths]

    def bins_build(device: str) -> BinsBuild:
        stream = StreamBuild(bins, encoder, "graphs" if device == "cuda" else "eager", shapes, bins, {})
        return BinsBuild((stream,), "shared", None, plan(device))

    def tokens_build(device: str) -> TokensBuild:
        return TokensBuild(tokens, backbone, tasks, (-5, 0), plan(device))

    return {
        "tokens": Case(tokens_build, -5, [("a", image) for image in random_images(3)], lambda out: out[2]),
        "bins": Case(bins_build, 1, texts(40, 20), lambda out: out),
        "cascade": Case(lambda device: CascadeBuild(models, plan(device)), 0, texts(12, 5), lambda out: out[0]),
    }


@asynccontextmanager
async def started(worker):
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


@pytest.mark.parametrize("system", SYSTEMS)
def test_after_a_lack_of_memory_a_process_answers_as_before(device, some, system):
    case = some[system]

    async def main():
        async with started(ProcessWorker(HungryBuild(case.build(device), device))) as worker:
            before = await case.first_answers(worker)
            with pytest.raises(WorkerError, match=r"(?i)memory"):
                await worker.run(HUNGRY, [])
            np.testing.assert_allclose(await case.answers(worker), before, atol=1e-3)

    asyncio.run(main())


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_killed_process_is_noticed_and_its_successor_answers_as_before(device, some, system):
    case = some[system]

    async def main():
        async with started(ProcessWorker(case.build(device))) as worker:
            ended = asyncio.Event()
            worker.on_end = ended.set
            before = await case.first_answers(worker)
            os.kill(worker.pid, signal.SIGKILL)
            await asyncio.wait_for(ended.wait(), 60)
            with pytest.raises(WorkerError):
                await worker.run(case.setting, case.payloads)
            await worker.restart()
            np.testing.assert_allclose(await case.answers(worker), before, atol=1e-3)

    asyncio.run(main())


@pytest.fixture(scope="module")
def build_engine(tmp_path_factory) -> Callable[..., EngineBuild]:
    folder = tmp_path_factory.mktemp("generator")
    digest = codec.save(tiny_generator(), folder)

    def build(device: str, memory=SCARCE) -> EngineBuild:
        return EngineBuild(folder, digest, memory, Rules("paged", CONTEXT), DevicePlan(device, 1, None, ()), None)

    return build


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


def test_a_killed_engine_is_noticed_and_its_successor_makes_the_same_texts(device, build_engine):
    expected = generated(tiny_generator(), prompts(6))

    async def main():
        async with started(EngineProcess(partial(build_engine, device), START_SECONDS)) as engine:
            ended = asyncio.Event()
            engine.on_end = ended.set
            assert await texts_of(engine, 6) == expected
            for id, ids in enumerate(prompts(6)):
                engine.send("submit", submission(id, ids))
            os.kill(engine.pid, signal.SIGKILL)
            await asyncio.wait_for(ended.wait(), 60)
            await engine.start()
            assert await texts_of(engine, 6) == expected

    asyncio.run(main())


def test_a_lack_of_memory_at_the_start_of_an_engine_is_told_in_one_sentence(device, build_engine):
    memory = type(SCARCE)(1 << 36, SCARCE.page_tokens)

    async def main():
        engine = EngineProcess(partial(build_engine, device, memory), START_SECONDS)
        with pytest.raises(WorkerError) as caught:
            await engine.start()
        assert "\n" not in str(caught.value) and "could not start" in str(caught.value)

    asyncio.run(main())
