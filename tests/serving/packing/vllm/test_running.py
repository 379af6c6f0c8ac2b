"""vLLM as the engine of packing's service: the same greedy texts as Pliant's own engine, also after it was killed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from pliant.packing.engine.complete import complete
from pliant.packing.engine.submission import Sampling, Submission
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.registry import codec
from pliant.serving.packing.engine.engine_process import EngineProcess, VllmBuild
from pliant.serving.packing.vllm.engine import variables
from pliant.serving.packing.vllm.model_folder import pages_of
from pliant.serving.workers.child_process import Interpreter
from pliant.serving.workers.devices import DevicePlan
from pliant.training.packing.generator import load
from tests.fixtures.packing import tiny_llama, vllm_environment

MEMORY = Memory(pages=24, page_tokens=32, step_tokens=64, sequences=8)
LIMIT = 24


def submissions(count: int, limit: int = LIMIT) -> list[Submission]:
    rng = np.random.default_rng(1)
    texts = [tuple(rng.integers(3, 250, int(rng.integers(1, 90))).tolist()) for _ in range(count)]
    return [
        Submission(Prompt(id, 0.0, len(ids), limit, (limit / 2,) * 8, tenant=str(id % 2)), ids)
        for id, ids in enumerate(texts)
    ]


class Reports:
    """What an engine's process said."""

    def __init__(self) -> None:
        self.tokens, self.ends, self.messages = defaultdict(list), {}, []

    def __call__(self, kind: str, value) -> None:
        self.messages.append((kind, value))
        for progress in value if kind == "progress" else ():
            self.tokens[progress.id] += progress.tokens
            if progress.finished:
                self.ends[progress.id] = progress.finished

    async def until(self, true) -> None:
        async with asyncio.timeout(120):
            while not true(self):
                await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    python, folder = vllm_environment.needed(), tmp_path_factory.mktemp("vllm")
    generator = load(f"path:{tiny_llama.write(folder / 'llama')}")
    digest = codec.save(generator, folder / "generator")
    interpreter = Interpreter(python, variables(python.parents[1]))
    plan, rules = DevicePlan("cpu", 1, None, ()), Rules("default", generator.context)
    own = VllmBuild(folder / "generator", digest, MEMORY, rules, plan, None, home=folder, interpreter=interpreter)
    return generator, own


@asynccontextmanager
async def engine(own: VllmBuild):
    reports, worker = Reports(), EngineProcess(lambda: own)
    worker.on_message = reports
    await worker.start()
    try:
        yield worker, reports
    finally:
        await worker.stop()


@pytest.mark.slow
def test_texts_are_those_of_the_own_engine_also_where_they_go_on_after_a_kill(build):
    generator, own = build
    wanted = submissions(12)
    alike = complete(generator, [each.ids for each in wanted], MEMORY, LIMIT)

    async def run() -> None:
        async with engine(own) as (worker, reports):
            for each in wanted:
                worker.send("submit", each)
            await reports.until(lambda said: len(said.tokens) == len(wanted))
            worker.kill()
            await asyncio.sleep(0.2)
            first = {id: tuple(tokens) for id, tokens in reports.tokens.items()}
            ended = dict(reports.ends)
            await worker.start()
            for each in wanted:
                id, made = each.prompt.id, first.get(each.prompt.id, ())
                if id not in ended:
                    worker.send("submit", replace(each, ids=each.ids + made, generated=len(made)))
            await reports.until(lambda said: len(said.ends) == len(wanted))
            worker.send("poll", 1)
            await reports.until(lambda said: any(kind == "report" for kind, _ in said.messages))
            _, status, wrong = next(value for kind, value in reports.messages if kind == "report")
            assert wrong == "" and status.running == status.waiting == 0 and status.pages_used == 0
            assert [tuple(reports.tokens[id]) for id in range(len(wanted))] == [each.tokens for each in alike]
            assert [reports.ends[id] for id in range(len(wanted))] == [each.finished for each in alike]

    asyncio.run(run())


@pytest.mark.slow
def test_cancelling_refusing_and_sampling(build):
    _, own = build

    async def run() -> None:
        async with engine(own) as (worker, reports):
            long, other, outside = submissions(3, limit=150)
            worker.send("submit", long)
            await reports.until(lambda said: len(said.tokens[0]) > 3)
            worker.send("cancel", 0)
            worker.send("submit", replace(outside, ids=(10_000, *outside.ids[1:])))
            drawn = Sampling(temperature=1.0, top_k=5, seed=3)
            short = replace(other, prompt=replace(other.prompt, limit=9), sampling=drawn, force=9)
            worker.send("submit", short)
            await reports.until(lambda said: len(said.ends) == 2)
            assert reports.ends == {0: "cancelled", 1: "length"} and len(reports.tokens[1]) == 9
            rejected = [value for kind, value in reports.messages if kind == "rejected"]
            assert rejected == [(2, "ids is 10000, but must be from 0 to 299")]
            late = replace(other, prompt=replace(other.prompt, id=7, deadline=0.0))
            worker.send("submit", late)
            await reports.until(lambda said: 7 in said.ends)
            assert reports.ends[7] == "late"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("size", "pages", "as_there"), [(32, 24, (24, 32)), (16, 24, (12, 32)), (48, 10, (7, 64)), (64, 5, (5, 64))]
)
def test_pages_hold_as_many_tokens_as_before_in_sizes_that_vllm_has(size, pages, as_there):
    there = pages_of(Memory(pages, size, host_pages=3, step_tokens=64), "cpu")
    assert (there.pages, there.page_tokens) == as_there
    assert pages_of(Memory(pages, size), "cuda") == Memory(pages, size)
