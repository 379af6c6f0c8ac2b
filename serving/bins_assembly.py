"""Puts the bins service together: registry, generations with their schedulers and workers, refresher, endpoint.

The one place that turns settings and artifacts into a scheduler and into a device's build plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.bins.cache import cache_folder, verify
from pliant.bins.knowledge import Config, Scaling, knowledge_of
from pliant.bins.plan import start_plan
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import DeviceError, WorkerError
from pliant.protocol import JournalEntry
from serving.artifacts import Registry, open_registry
from serving.bins_catalog import PREFIX, Catalog, ServedStream, load_catalog
from serving.bins_endpoint import ORIGINS, BinsEndpoint, Parts, Way, bin_name, ways
from serving.bins_payload import BinsBuild, StreamBuild
from serving.catalog import discard
from serving.clock import Clock, loop_clock
from serving.device_plan import DevicePlan
from serving.device_process import Build
from serving.driver import Driver, Limits
from serving.generation import Generation, Generations, numbered
from serving.journal import FileRecorder
from serving.metrics import Metrics
from serving.refresh import Refresher, Source
from serving.settings import Settings
from serving.workers import ProcessWorker, Worker

Hire = Callable[[Build], Worker]
"""A worker, not yet started, for a build plan."""


@dataclass(frozen=True, slots=True)
class Assembly:
    endpoint: BinsEndpoint
    generations: Generations[Catalog, Way]
    refresher: Refresher[Catalog, Way]
    watch: asyncio.Task[None]  # its own
    close: Callable[[], None]  # the pool of devices

    async def stop(self) -> None:
        self.watch.cancel()
        with suppress(asyncio.CancelledError):
            await self.watch
        await self.generations.stop()
        self.close()


def check(settings: Settings) -> None:
    """What launch.py's `check` says, for this system. Ray's nodes look at their own devices and files."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    make_scheduler(settings, catalog)
    ways(catalog)
    if settings.pool == "ray":
        if find_spec("ray") is None:
            raise WorkerError("the pool is ray, but Ray is missing here: pip install 'pliant[ray]'")
        return
    if not settings.any_profile:
        from serving.on_device import check_device

        for device in devices(settings):
            check_device(catalog.device, device, settings.threads)
    for served in catalog.streams.values():
        verify(compiled(settings, served), served.bins.files)


async def assemble(
    settings: Settings,
    registry: Registry | None = None,
    hire: Hire | None = None,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly:
    """A service whose models have run. Raises `PliantError`."""
    registry, clock, metrics = registry or open_registry(settings), loop_clock(), Metrics("bin", ORIGINS, counted)
    hire, close = (hire, _nothing) if hire else open_pool(settings)
    try:
        builder = Builder(settings, clock, metrics, hire)
        first = await builder.start(load_catalog(registry, settings.alias))
    except BaseException:
        close()
        raise
    generations = Generations(first, lambda former, present: discard(registry, former.catalog, present.catalog))
    source = Source(registry, settings.alias, PREFIX, load_catalog)
    refresher = Refresher(generations, source, builder.start, settings.refresh_seconds, metrics)
    endpoint = BinsEndpoint(Parts(settings, generations, refresher, metrics, clock))
    return Assembly(endpoint, generations, refresher, asyncio.create_task(refresher.watch.run()), close)


def open_pool(settings: Settings) -> tuple[Hire, Callable[[], None]]:
    """Where devices come from, and what ends that. Raises `WorkerError` where Ray cannot be reached."""
    if settings.pool == "processes":
        return ProcessWorker, _nothing
    from serving.ray_pool import RayPool, Resources

    pool = RayPool(settings.ray_address, Resources(num_gpus=float(settings.device.startswith("cuda"))))
    return pool.hire, pool.close


class Builder:
    """Makes one generation after the other."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, hire: Hire) -> None:
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
        settings, number = self._settings, self._made + 1
        made = make_scheduler(settings, catalog)
        paths = ways(catalog)
        workers = [self._hire(build_plan(settings, catalog, worker)) for worker in range(settings.workers)]
        recorder = FileRecorder(numbered(settings.journal, number)) if settings.journal else None
        names = [f"{stream}/{bin_name(shape)}" for stream, shape in catalog.shapes]

        def record(entry: JournalEntry) -> None:
            self._metrics.observe(entry, names.__getitem__)
            self._metrics.waiting(driver.waiting)
            if recorder is not None:
                recorder(entry)

        limits = Limits(launch=settings.launch_limit)
        driver = Driver(made, workers, record, self._clock, limits, self._metrics.died_idle)
        self._made = number
        return Generation(number, catalog, paths, driver, recorder)

    def _check_device(self, catalog: Catalog) -> None:
        """Before any process is started: it would find the same, and later."""
        if self._settings.any_profile:
            return
        if self._device not in (None, catalog.device):
            raise DeviceError(
                f"the new streams were profiled on {catalog.device}, but this device is {self._device}: "
                "profile again on it, or serve regardless (--any-profile)"
            )
        self._device = catalog.device


def make_scheduler(settings: Settings, catalog: Catalog) -> BinsScheduler:
    """The settings' most waiting requests are shared out evenly to the workers."""
    config = Config(
        workers=settings.workers,
        dispatch=settings.dispatch,
        margin=settings.margin,
        max_waiting=-(-settings.max_waiting // settings.workers),
        deployed=deployed(settings, catalog),
        scaling=Scaling(least=settings.least_workers) if settings.least_workers else None,
    )
    return BinsScheduler(knowledge_of(catalog.plans), config)


def deployed(settings: Settings, catalog: Catalog) -> tuple[int, ...]:
    """Under placement "single" the runtime that each worker begins with, by its number in the scheduler's knowledge."""
    return () if catalog.placement == "shared" else tuple(start_plan(knowledge_of(catalog.plans), settings.workers))


def build_plan(settings: Settings, catalog: Catalog, worker: int) -> BinsBuild:
    """What the device of one worker is told."""
    insisted = None if settings.any_profile else catalog.device
    every = devices(settings)
    plan = DevicePlan(every[worker % len(every)], settings.threads, insisted, ())
    streams = tuple(_stream_build(settings, served) for served in catalog.streams.values())
    return BinsBuild(streams, catalog.placement, _first(settings, catalog, worker), plan)


def compiled(settings: Settings, served: ServedStream) -> Path:
    """The folder of a stream's compiled files."""
    return cache_folder(settings.home, served.encoder.digest, served.bins.device_class)


def devices(settings: Settings) -> list[str]:
    return [device.strip() for device in settings.device.split(",")]


def _first(settings: Settings, catalog: Catalog, worker: int) -> int | None:
    begun = deployed(settings, catalog)
    return knowledge_of(catalog.plans).runtimes[begun[worker]].settings[0] if begun else None


def _stream_build(settings: Settings, served: ServedStream) -> StreamBuild:
    bins, encoder = served.bins, served.encoder
    folder = compiled(settings, served)
    return StreamBuild(encoder.folder, encoder.digest, bins.engine, bins.shapes, folder, dict(bins.files))


def _nothing() -> None:
    pass
