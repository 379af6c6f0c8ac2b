"""Puts the cascade service together: registry, generations with their schedulers and workers, refresher, endpoint.

The one place that turns settings and artifacts into a scheduler and into a device process's build plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.cascade.knowledge import Knowledge, knowledge, numbers, prunes
from pliant.cascade.scheduler import CascadeScheduler, Options
from pliant.errors import DeviceError
from pliant.protocol import JournalEntry
from serving.artifacts import Registry, open_registry
from serving.cascade_catalog import PREFIX, Catalog, load_catalog
from serving.cascade_endpoint import ORIGINS, CascadeEndpoint, Parts
from serving.cascade_outcomes import Outcomes
from serving.cascade_payload import CascadeBuild, ModelBuild
from serving.cascade_reading import Way, read, way
from serving.catalog import discard
from serving.clock import Clock, loop_clock
from serving.device_plan import DevicePlan
from serving.device_process import Build
from serving.driver import Driver, Limits, Record
from serving.generation import Generation, Generations, numbered
from serving.journal import FileRecorder
from serving.metrics import Metrics
from serving.refresh import Refresher, Source
from serving.settings import Settings
from serving.workers import ProcessWorker, Worker

WARM_BATCHES = (1, 16)  # that every classifier runs before the first request

Hire = Callable[[Build], Worker]
"""A worker, not yet started, for a build plan."""


@dataclass(frozen=True, slots=True)
class Assembly:
    endpoint: CascadeEndpoint
    generations: Generations[Catalog, Way]
    refresher: Refresher[Catalog, Way]
    watch: asyncio.Task[None]  # its own

    async def stop(self) -> None:
        self.watch.cancel()
        with suppress(asyncio.CancelledError):
            await self.watch
        await self.generations.stop()


def check(settings: Settings) -> None:
    """What launch.py's `check` says, for this system."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    make_scheduler(settings, make_knowledge(settings, catalog))
    for served in catalog.tasks.values():
        way(served)
    if not settings.any_profile:
        from serving.on_device import check_device

        for device in devices(settings):
            check_device(catalog.device, device, settings.threads)


async def assemble(
    settings: Settings,
    registry: Registry | None = None,
    hire: Hire = ProcessWorker,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly:
    """A service whose models have run. Raises `PliantError`."""
    registry, clock, metrics = registry or open_registry(settings), loop_clock(), Metrics("model", ORIGINS, counted)
    builder = Builder(settings, clock, metrics, hire)
    first = await builder.start(load_catalog(registry, settings.alias))
    generations = Generations(first, lambda former, present: discard(registry, former.catalog, present.catalog))
    source = Source(registry, settings.alias, PREFIX, load_catalog)
    refresher = Refresher(generations, source, builder.start, settings.refresh_seconds, metrics)
    parts = Parts(settings, generations, refresher, metrics, Outcomes(counted), clock)
    watch = asyncio.create_task(refresher.watch.run())
    return Assembly(CascadeEndpoint(parts), generations, refresher, watch)


class Builder:
    """Makes one generation after the other."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, hire: Hire = ProcessWorker) -> None:
        self._settings, self._clock, self._metrics, self._hire = settings, clock, metrics, hire
        self._made = 0
        self._device: str | None = None  # class that the first one was profiled on

    async def start(self, catalog: Catalog) -> Generation[Catalog, Way]:
        """Raises `DeviceError` for another class of device than the first one's, and as `Generation.start`."""
        made = self.make(catalog)
        await made.start()
        return made

    def make(self, catalog: Catalog) -> Generation[Catalog, Way]:
        self._check_device(catalog)
        settings = self._settings
        scheduler = make_scheduler(settings, make_knowledge(settings, catalog))
        ways = {name: way(served) for name, served in catalog.tasks.items()}
        workers = [self._hire(build_plan(settings, catalog, number)) for number in range(settings.workers)]
        number = self._made + 1
        recorder = FileRecorder(numbered(settings.journal, number)) if settings.journal else None
        record = _record(scheduler, self._metrics, recorder, model_names(catalog))
        limits = Limits(launch=settings.launch_limit)
        driver = Driver(scheduler, workers, record, self._clock, limits, self._metrics.died_idle, read)
        self._made = number
        return Generation(number, catalog, ways, driver, recorder)

    def _check_device(self, catalog: Catalog) -> None:
        """Before any process is started: it would find the same, and later."""
        if self._settings.any_profile:
            return
        if self._device not in (None, catalog.device):
            raise DeviceError(
                f"the new tasks were profiled on {catalog.device}, but this device is {self._device}: "
                "profile again on it, or serve regardless (--any-profile)"
            )
        self._device = catalog.device


def make_knowledge(settings: Settings, catalog: Catalog) -> Knowledge:
    return knowledge(catalog.cascades, settings.workers, settings.placement == "own")


def make_scheduler(settings: Settings, known: Knowledge) -> CascadeScheduler:
    options = Options(margin=settings.margin, max_waiting=settings.max_waiting)
    return CascadeScheduler(known, settings.workers, options)


def build_plan(settings: Settings, catalog: Catalog, worker: int) -> CascadeBuild:
    """What the device process of one worker is told: the classifiers that launches may send it to."""
    models, known = [], make_knowledge(settings, catalog).models
    for (task, level), number in numbers(catalog.cascades).items():
        served = catalog.tasks[task]
        if worker in known[number].workers:
            held = served.levels[level]
            models.append(ModelBuild(number, held.folder, held.digest, level in prunes(served.cascade)))
    insisted = None if settings.any_profile else catalog.device
    every = devices(settings)
    return CascadeBuild(tuple(models), DevicePlan(every[worker % len(every)], settings.threads, insisted, WARM_BATCHES))


def devices(settings: Settings) -> list[str]:
    return [device.strip() for device in settings.device.split(",")]


def model_names(catalog: Catalog) -> list[str]:
    """What metrics call the models, by their numbers."""
    return [f"{cascade.task}/{level.name}" for cascade in catalog.cascades for level in cascade.levels]


def _record(scheduler: CascadeScheduler, metrics: Metrics, recorder: FileRecorder | None, names: list[str]) -> Record:
    def record(entry: JournalEntry) -> None:
        metrics.observe(entry, names.__getitem__)
        metrics.waiting(scheduler.waiting)
        if recorder is not None:
            recorder(entry)

    return record
