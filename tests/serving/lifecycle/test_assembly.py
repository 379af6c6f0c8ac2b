"""A service starts whole or leaves nothing behind, and its generations have workers, journals and numbers of their own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import WorkerError
from pliant.fallbacks import Fallback
from pliant.protocol import Limited
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.driver import Completed
from pliant.serving.journal import read
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.lifecycle.system import Blueprint, ServedSystem
from pliant.serving.metrics import Metrics
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually
from tests.serving.lifecycle.refreshing import A, Catalog, Registry


class Driver:
    def __init__(self, log: list[str], refuses: bool) -> None:
        self.log, self.refuses = log, refuses

    async def start(self):
        self.log.append("start")
        if self.refuses:
            raise WorkerError("no room")

    async def stop(self):
        self.log.append("stop")


class System(ServedSystem):
    """A system that tries and watches nothing, and one of whose parts may fail."""

    setting, origins = "size", ()

    def __init__(self, home: Path, trouble: str = "") -> None:
        super().__init__(BinsSettings(home=home, refresh_seconds=0.001, try_challengers=False, watch_seconds=0.0))
        self.log, self.trouble = [], trouble

    def load(self, *_):
        if self.trouble == "load":
            raise OSError("a file is missing")
        return Catalog({A: 1})

    def maker(self, *_):
        return lambda number, catalog: Generation(number, catalog, {}, Driver(self.log, self.trouble == "start"))

    def open_pool(self):
        return None, lambda: self.log.append("close")

    def endpoint(self, parts):
        return "the endpoint of", parts.refresher


def test_it_starts_the_first_generation_polls_from_then_on_and_ends_in_order(tmp_path):
    async def main():
        system, counted = System(tmp_path), CollectorRegistry()
        log, service = system.log, await system.assemble(Registry(), counted=counted)
        assert service.endpoint == ("the endpoint of", service.refresher)
        assert log == ["start"] and service.generations.present.number == 1
        async with asyncio.timeout(10):
            while (counted.get_sample_value("pliant_refreshes_total", {"outcome": "unchanged"}) or 0) < 2:
                await asyncio.sleep(0.001)
        await service.stop()
        assert log == ["start", "stop", "close"] and all(task.done() for task in service.polling)

    asyncio.run(main())


@pytest.mark.parametrize("trouble", ["identity", "load", "start"])
def test_whatever_fails_at_the_start_closes_what_the_workers_need_once_and_leaves_nothing(trouble, tmp_path):
    async def main():
        registry, system = Registry(), System(tmp_path, trouble)
        if trouble == "identity":
            registry.identity = lambda: 1 / 0
        with pytest.raises((OSError, ZeroDivisionError, WorkerError)):
            await system.assemble(registry, counted=CollectorRegistry())
        assert system.log == (["start", "stop", "close"] if trouble == "start" else ["close"])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.mark.parametrize("limited", [True, False])
def test_a_generation_runs_every_worker_and_its_requests_are_counted_and_written_down(tmp_path, limited):
    """What a device says of its memory reaches the scheduler where that can use it."""

    async def main():
        counted, workers = CollectorRegistry(), []
        settings = BinsSettings(journal=tmp_path / "j.jsonl", spare=1)
        plan = Blueprint(
            make_scheduler=lambda: FifoScheduler(workers=2),
            handlers={"x": "its handler"},
            builds=["left", "right"],
            setting_name=lambda setting: f"size {setting}",
            read=lambda pending, result: replace(result, length=len(pending.payload)),
            facts={"known": 1},
            limited=limited,
        )

        def make_worker(build):
            workers.append(FakeWorker(build=build))
            return workers[-1]

        clock = asyncio.get_running_loop().time
        system, catalog = SimpleNamespace(settings=settings, blueprint=lambda catalog: plan), Catalog({A: 1})
        generation = ServedSystem.maker(system, clock, Metrics("size", (), counted), make_worker)(2, catalog)
        assert (generation.number, generation.catalog, generation.handlers) == (2, catalog, {"x": "its handler"})
        assert [worker.build for worker in workers] == ["left", "right", "left"]
        await generation.start()
        assert generation.driver.scheduler.facts == [{"known": 1}]
        answer = await generation.driver.submit("x", 5.0, 1.0, "payload")
        assert isinstance(answer, Completed) and answer.output == "payload"
        workers[0].on_fallback(Fallback("capture", "a graph is missing"))
        workers[0].on_fallback(Fallback("memory", "a batch at gamma -5 runs at most 16 at a time", -5, 16))
        await generation.stop()
        sample = counted.get_sample_value
        assert sample("pliant_arrivals_total", {"task": "x"}) == 1
        assert sample("pliant_launches_total", {"size": "size 0"}) == 1
        assert sample("pliant_waiting") == 0
        events = [entry.event for entry in read(tmp_path / "j-2.jsonl")]
        assert [type(event).__name__ for event in events[:3]] == ["Changed", "Arrived", "Finished"]
        assert [result.length for result in events[2].results] == [len("payload")]
        assert events[3:] == ([Limited(-5, 16)] if limited else [])
        assert not (tmp_path / "j.jsonl").exists()
        assert workers[0].calls[0] == "start" and workers[1].calls[0] == "start"

    run_virtually(main())
