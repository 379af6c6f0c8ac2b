"""Several engines of one model are used as one, and every output goes to the engine that has least to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from pliant.errors import WorkerError
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.request import Prompt
from pliant.serving.packing.endpoint import EnginePool
from pliant.serving.packing.engine.engine import EngineDriver, EngineGroup, InFlightOutput
from pliant.serving.packing.text import Detokenizer, Writer
from tests.fixtures.fakes import run_virtually
from tests.fixtures.packing.fakes import TALE, FakeWorker, new_tokenizer
from tests.serving.packing.engine.test_engine import LIMITS, until


def scenario(test):
    """Run on a loop of its own, with a started group of two engines and their workers."""

    async def run():
        workers = [FakeWorker(lambda: None), FakeWorker(lambda: None)]
        clock = asyncio.get_running_loop().time
        group = EngineGroup([("cpu", EngineDriver(worker, clock, LIMITS)) for worker in workers])
        await group.start()
        try:
            await asyncio.wait_for(test(group, workers), 20)
        finally:
            for worker in workers:
                worker.trouble, worker.held = "", False
            await group.stop()
        assert all(worker.stopped for worker in workers) and group.pending == 0

    def wrapped():
        run_virtually(run())

    wrapped.__name__ = test.__name__
    return wrapped


def output_of(group, predicted: float, tenant: str = "") -> InFlightOutput:
    prompt = Prompt(group.next_id(), 0.0, 3, 200, (predicted,) * 8, tenant=tenant)
    writer = Writer(Detokenizer(new_tokenizer(), (5, 6, 7)), ())
    return InFlightOutput(Submission(prompt, (5, 6, 7)), writer, frozenset({0}), lambda _output: None)


def places(group, outputs) -> list[int]:
    return [next(number for number, engine in enumerate(group.engines) if engine.holds(output)) for output in outputs]


@scenario
async def test_each_output_goes_to_the_engine_with_the_fewest_tokens_left_as_predicted(group, workers):
    for worker in workers:
        worker.held = True
    first = [output_of(group, predicted) for predicted in (100.0, 20.0, 20.0, 20.0)]
    group.submit(first)
    assert places(group, first) == [0, 1, 1, 1]
    later = [output_of(group, 50.0), output_of(group, 1.0)]
    group.submit(later)
    assert places(group, later) == [1, 0]
    assert [engine.load for engine in group.engines] == [103.0 + 4.0, 3 * 23.0 + 53.0]
    assert (group.pending, group.waiting) == (6, 6)
    assert len({output.id for output in (*first, *later)}) == 6


@scenario
async def test_while_one_restarts_the_other_gets_all_and_what_the_dead_one_had_goes_on(group, workers):
    workers[0].held = True
    had = output_of(group, 10.0)
    group.submit([had])
    workers[0].trouble = "no device"
    workers[0].die()
    assert group.ready and group.alive
    outputs = [output_of(group, 500.0) for _ in range(3)]
    group.submit(outputs)
    assert places(group, outputs) == [1, 1, 1] and places(group, [had]) == [0]
    workers[0].trouble, workers[0].held = "", False
    await until(lambda: had.finish and all(output.finish for output in outputs))
    assert had.writer.take() == TALE


@scenario
async def test_without_any_engine_an_output_is_refused(group, workers):
    for worker in workers:
        worker.trouble = "no device"
        worker.die()
    assert not group.ready
    await until(lambda: not group.alive)
    with pytest.raises(WorkerError, match="cannot be started"):
        group.submit([output_of(group, 1.0)])


@scenario
async def test_the_queue_is_limited_in_all_and_room_is_made_in_the_longest_line(group, workers):
    for worker in workers:
        worker.held = True
    group.submit([output_of(group, predicted, "greedy") for predicted in (90.0, 20.0, 20.0, 20.0)])
    assert group.surplus(2, 6, "modest", 1.0) == []
    surplus = group.surplus(2, 5, "modest", 1.0)
    assert len(surplus) == 1 and places(group, surplus) == [1]
    assert group.surplus(2, 5, "greedy", 1.0) is None
    assert group.waiting == 4


@dataclass
class Part:
    """An engine, a forecaster or a file, with what was done to it."""

    error: WorkerError | None = None
    ready: bool = True
    alive: bool = True
    waiting: int = 0
    pending: int = 0
    done: list[str] = field(default_factory=list)

    async def start(self) -> None:
        await asyncio.sleep(0)
        self.done.append("start")
        if self.error is not None:
            raise self.error

    async def stop(self) -> None:
        self.done.append("stop")

    def close(self) -> None:
        self.done.append("close")


def test_no_engine_takes_a_gpus_memory_before_the_predictors_have_theirs():
    engines, forecasters = [Part(), Part()], [Part(WorkerError("no room for the predictor")), Part()]
    handlers = [
        SimpleNamespace(engine=each, forecaster=other) for each, other in zip(engines, forecasters, strict=True)
    ]
    with pytest.raises(WorkerError, match="no room for the predictor"):
        asyncio.run(EnginePool(handlers, forecasters_first=True).start())
    assert [part.done for part in (*engines, *forecasters)] == [[], [], ["start"], ["start"]]
