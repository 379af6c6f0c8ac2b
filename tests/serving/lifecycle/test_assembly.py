"""A service starts whole or leaves nothing behind, and its generations have workers, journals and numbers of their own."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from pliant.errors import DeviceError, WorkerError
from pliant.fallbacks import Fallback
from pliant.protocol import Limited
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.driver import Completed, loop_clock
from pliant.serving.journal import read
from pliant.serving.lifecycle.endpoint import Blueprint, assemble, generation_maker
from pliant.serving.lifecycle.generation import Generation
from pliant.serving.lifecycle.refresh import Source
from pliant.serving.metrics import Metrics
from pliant.serving.tokens.settings import TokensSettings
from pliant.serving.workers.devices import SameDevice
from tests.fixtures.fakes import FakeWorker, FifoScheduler, run_virtually


@dataclass(frozen=True)
class Catalog:
    pointers: dict[str, int] = field(default_factory=lambda: {"x": 1})
    device: str = "cpu"
    folders: frozenset[Path] = frozenset()

    def serves_as(self, other):
        return self == other


class Driver:
    def __init__(self, log, refuses=False) -> None:
        self.log, self.refuses = log, refuses

    async def start(self):
        self.log.append("start")
        if self.refuses:
            raise WorkerError("no room")

    async def stop(self):
        self.log.append("stop")


class Registry:
    def __init__(self) -> None:
        self.discarded: list[Path] = []

    def identity(self):
        return "the registry"

    def bell(self, system):
        return None

    def versions(self, prefix, alias):
        return {"x": 1}

    def discard(self, folder):
        self.discarded.append(folder)


class Counter:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def refreshed(self, outcome):
        self.outcomes.append(outcome)


def settings(seconds):
    """Return the settings of a service that tries nothing."""
    return SimpleNamespace(
        refresh_seconds=seconds,
        standby_seconds=0.0,
        try_challengers=False,
        trial_copy_time=1.0,
        webhook_url="",
        home=Path("there is no such folder"),
    )


def source(registry=None, load=lambda *_: Catalog()):
    return Source(registry or Registry(), "champion", "mine-", load)


def test_it_starts_the_first_generation_polls_from_then_on_and_ends_in_order():
    async def main():
        log, counter = [], Counter()
        service = await assemble(
            source(),
            lambda number, catalog: Generation(number, catalog, {}, Driver(log)),
            SameDevice("models", False),
            lambda refresher: ("the endpoint of", refresher),
            settings(0.001),
            counter,
            time.monotonic,
            close=lambda: log.append("close"),
        )
        assert service.endpoint == ("the endpoint of", service.refresher)
        assert log == ["start"] and service.generations.present.number == 1
        async with asyncio.timeout(10):
            while len(counter.outcomes) < 2:
                await asyncio.sleep(0.001)
        assert set(counter.outcomes) == {"unchanged"}
        await service.stop()
        assert log == ["start", "stop", "close"] and all(task.done() for task in service.polling)

    asyncio.run(main())


@pytest.mark.parametrize("trouble", ["identity", "load", "device", "start"])
def test_whatever_fails_at_the_start_closes_what_the_workers_need_once_and_leaves_nothing(trouble):
    def load(*_):
        if trouble == "load":
            raise OSError("a file is missing")
        return Catalog()

    async def main():
        log, registry = [], Registry()
        if trouble == "identity":
            registry.identity = lambda: 1 / 0
        same = SameDevice("models", False)
        if trouble == "device":
            same.check(Catalog(device="a GPU"))
        with pytest.raises((OSError, ZeroDivisionError, DeviceError, WorkerError)):
            await assemble(
                source(registry, load),
                lambda number, catalog: Generation(number, catalog, {}, Driver(log, trouble == "start")),
                same,
                lambda _: pytest.fail("there is no endpoint"),
                settings(1.0),
                Counter(),
                time.monotonic,
                close=lambda: log.append("close"),
            )
        assert log == (["start", "stop", "close"] if trouble == "start" else ["close"])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def blueprint(catalog, scheduler=FifoScheduler, **more):
    return Blueprint(
        make_scheduler=lambda: scheduler(workers=2), handlers={"x": "its handler"}, builds=["left", "right"], **more
    )


def maker(settings, counted, workers, plan=blueprint):
    def make_worker(build):
        workers.append(FakeWorker(build=build))
        return workers[-1]

    return generation_maker(
        settings, lambda: asyncio.get_running_loop().time(), Metrics("size", (), counted), make_worker, plan
    )


def test_a_generation_runs_every_worker_and_its_requests_are_counted_and_written_down(tmp_path):
    async def main():
        counted, workers = CollectorRegistry(), []
        settings = BinsSettings(journal=tmp_path / "j.jsonl", spare=1)
        plan = lambda catalog: blueprint(  # noqa: E731
            catalog,
            setting_name=lambda setting: f"size {setting}",
            read=lambda pending, result: replace(result, length=len(pending.payload)),
            facts={"known": 1},
        )
        generation = maker(settings, counted, workers, plan)(2, Catalog())
        assert (generation.number, generation.catalog, generation.handlers) == (2, Catalog(), {"x": "its handler"})
        assert [worker.build for worker in workers] == ["left", "right", "left"]
        await generation.start()
        assert generation.driver.scheduler.facts == [{"known": 1}]
        answer = await generation.driver.submit("x", 5.0, 1.0, "payload")
        assert isinstance(answer, Completed) and answer.output == "payload"
        await generation.stop()
        sample = counted.get_sample_value
        assert sample("pliant_arrivals_total", {"task": "x"}) == 1
        assert sample("pliant_launches_total", {"size": "size 0"}) == 1
        assert sample("pliant_waiting") == 0
        entries = read(tmp_path / "j-2.jsonl")
        assert [type(entry.event).__name__ for entry in entries] == ["Changed", "Arrived", "Finished"]
        assert [result.length for result in entries[2].event.results] == [len("payload")]
        assert not (tmp_path / "j.jsonl").exists()
        assert workers[0].calls[0] == "start" and workers[1].calls[0] == "start"

    run_virtually(main())


@pytest.mark.parametrize("limited", [True, False])
def test_a_device_that_lacks_memory_limits_the_batches_of_its_generation(limited, tmp_path):
    async def main():
        worker = FakeWorker()
        settings = TokensSettings(journal=tmp_path / "journal.jsonl")
        plan = Blueprint(FifoScheduler, {}, [object()], lambda driver: 0, facts={"facts": 1}, limited=limited)
        metrics = Metrics("gamma", (), CollectorRegistry())
        make = generation_maker(settings, loop_clock(), metrics, lambda build: worker, lambda catalog: plan)
        generation = make(1, None)
        await generation.start()
        worker.on_fallback(Fallback("capture", "a graph is missing"))
        worker.on_fallback(Fallback("memory", "a batch at gamma -5 runs at most 16 at a time", -5, 16))
        await generation.stop()

    asyncio.run(main())
    (journal,) = tmp_path.iterdir()
    events = [entry.event for entry in read(journal)]
    assert [event for event in events if isinstance(event, Limited)] == ([Limited(-5, 16)] if limited else [])
