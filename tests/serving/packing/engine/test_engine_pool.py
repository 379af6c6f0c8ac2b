"""What runs for a generation starts and stops as a whole."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from pliant.errors import WorkerError
from serving.packing.engine.engine_pool import EnginePool


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


def test_all_start_and_stop_together():
    engines, forecasters, files = ([Part(), Part()] for _ in range(3))
    pool = EnginePool(engines, forecasters, files)

    async def run():
        await pool.start()
        await pool.stop()

    asyncio.run(run())
    assert [part.done for part in (*engines, *forecasters)] == [["start", "stop"]] * 4
    assert [part.done for part in files] == [["close"]] * 2


def test_one_that_cannot_start_is_an_error_once_the_others_have_started():
    engines, forecasters = [Part(WorkerError("no memory")), Part()], [Part()]
    with pytest.raises(WorkerError, match="no memory"):
        asyncio.run(EnginePool(engines, forecasters, []).start())
    assert [part.done for part in (*engines, *forecasters)] == [["start"]] * 3


def test_no_engine_takes_a_gpus_memory_before_the_predictors_have_theirs():
    engines, forecasters = [Part()], [Part(WorkerError("no room for the predictor")), Part()]
    with pytest.raises(WorkerError, match="no room for the predictor"):
        asyncio.run(EnginePool(engines, forecasters, [], forecasters_first=True).start())
    assert [part.done for part in (*engines, *forecasters)] == [[], ["start"], ["start"]]


def test_a_pool_is_ready_and_alive_if_all_engines_are_and_counts_what_all_have():
    engines = [Part(waiting=2, pending=5), Part(waiting=1, pending=1)]
    pool = EnginePool(engines, [], [])
    assert pool.ready and pool.alive
    assert (pool.waiting, pool.pending) == (3, 6)
    engines[1].ready = False
    assert not pool.ready and pool.alive
    engines[0].alive = False
    assert not pool.alive


def test_the_engines_end_before_their_forecasters_and_files():
    order = []

    class Noting(Part):
        async def stop(self) -> None:
            await asyncio.sleep(0)
            order.append(self.waiting)

        def close(self) -> None:
            order.append(self.waiting)

    pool = EnginePool([Noting(waiting=1)], [Noting(waiting=2)], [Noting(waiting=3)])
    asyncio.run(pool.stop())
    assert order == [1, 2, 3]
