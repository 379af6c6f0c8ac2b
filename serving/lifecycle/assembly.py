"""What systems' assemblies have in common: a generation made from a catalog, the first one, and those that follow it.

Knows schedulers, workers and the registry by their protocols; knows no system. How a catalog becomes a scheduler and build
plans says each system's own assembly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic

from typing_extensions import TypeVar

from pliant.protocol import JournalEntry, Scheduler
from serving.clock import Clock
from serving.driver import Driver, Limits, Read, Record
from serving.journal import FileRecorder
from serving.lifecycle.catalog import Catalog
from serving.lifecycle.generation import Generation, Generations, Running, numbered
from serving.lifecycle.refresh import Refresher
from serving.metrics import Metrics
from serving.settings import Settings
from serving.workers.device_process import Build
from serving.workers.devices import SameDevice
from serving.workers.worker import Worker

C = TypeVar("C", bound=Catalog)
E = TypeVar("E")
W = TypeVar("W")
D = TypeVar("D", bound=Running, default=Driver)

WorkerFactory = Callable[[Build], Worker]
"""A worker, not yet started, for a build plan."""


@dataclass(frozen=True, slots=True)
class Assembly(Generic[E, C, W, D]):
    """A service that runs and keeps up with the registry."""

    endpoint: E
    refresher: Refresher[C, W, D]
    polling: asyncio.Task[None]  # its own
    close: Callable[[], None] = lambda: None  # the pool of devices

    @property
    def generations(self) -> Generations[C, W, D]:
        return self.refresher.generations

    async def stop(self) -> None:
        await end(self.polling)
        await self.generations.stop()
        self.close()


async def end(polling: asyncio.Task[None]) -> None:
    polling.cancel()
    with suppress(asyncio.CancelledError):
        await polling


@dataclass(frozen=True, slots=True)
class Blueprint(Generic[W]):
    """What a system makes of a catalog, before anything runs."""

    scheduler: Scheduler
    ways: Mapping[str, W]  # by task
    builds: Sequence[Build]  # a worker each
    names: Sequence[str]  # what metrics call the settings of launches
    waiting: Callable[[Driver], int]  # requests that no worker has in hand
    read: Read = lambda _pending, result: result


class Builder(Generic[C, W]):
    """Makes one generation after the other."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        worker_factory: WorkerFactory,
        blueprint: Callable[[C], Blueprint[W]],
        same: SameDevice,
    ) -> None:
        self._settings, self._clock, self._metrics = settings, clock, metrics
        self._worker_factory, self._draw, self._same = worker_factory, blueprint, same
        self._made = 0

    async def start(self, catalog: C) -> Generation[C, W]:
        """Raises `DeviceError` for another class of device than the first one's, and as `Generation.start`."""
        self._same.check(catalog)
        made = self._make(catalog, self._draw(catalog))
        self._made = made.number
        await made.start()
        return made

    def _make(self, catalog: C, blueprint: Blueprint[W]) -> Generation[C, W]:
        settings, metrics, number = self._settings, self._metrics, self._made + 1
        workers = [self._worker_factory(build) for build in blueprint.builds]
        recorder = FileRecorder(numbered(settings.journal, number)) if settings.journal else None
        record = recording(metrics, lambda: blueprint.waiting(driver), recorder, blueprint.names.__getitem__)
        limits = Limits(launch=settings.launch_limit)
        driver = Driver(blueprint.scheduler, workers, record, self._clock, limits, metrics.died_idle, blueprint.read)
        return Generation(number, catalog, blueprint.ways, driver, recorder)


def recording(
    metrics: Metrics, waiting: Callable[[], int], recorder: FileRecorder | None, named: Callable[[int], str] = str
) -> Record:
    """Each entry of the journal to metrics and file; `named` says what a launch's setting is called."""

    def record(entry: JournalEntry) -> None:
        metrics.observe(entry, named)
        metrics.waiting(waiting())
        if recorder is not None:
            recorder(entry)

    return record
