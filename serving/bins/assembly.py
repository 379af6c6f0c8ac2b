"""Puts the bins service together: registry, generations with their schedulers and workers, refresher, endpoint.

The one place that turns settings and artifacts into a scheduler and into a device's build plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.bins.knowledge import Config, Scaling, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.policies import make
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import WorkerError
from registry.names import BINS_PREFIX
from serving.bins.catalog import Catalog, ServedStream, load_catalog
from serving.bins.endpoint import ORIGINS, BinsEndpoint, Dependencies, Way, bin_name, ways
from serving.bins.messages import BinsBuild, StreamBuild
from serving.bins.settings import BinsSettings
from serving.clock import loop_clock
from serving.lifecycle.artifacts import Registry, open_registry
from serving.lifecycle.assembly import Assembly, Blueprint, Builder, WorkerFactory
from serving.lifecycle.refresh import Source, follow
from serving.metrics import Metrics
from serving.workers.device_plan import DevicePlan
from serving.workers.devices import SameDevice, check_devices, devices
from serving.workers.resources import Resources
from serving.workers.worker import ProcessWorker


def check(settings: BinsSettings) -> None:
    """What launch.py's `check` says, for this system. Ray's nodes look at their own devices and files."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    make_scheduler(settings, catalog)
    ways(catalog)
    if settings.pool == "ray":
        if find_spec("ray") is None:
            raise WorkerError("the pool is ray, but Ray is missing here: pip install 'pliant[ray]'")
        return
    check_devices(settings, catalog)
    for served in catalog.streams.values():
        verify(compiled(settings, served), served.bins.files)


async def assemble(
    settings: BinsSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory | None = None,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[BinsEndpoint, Catalog, Way]:
    """A service whose models have run. Raises `PliantError`."""
    registry, clock, metrics = registry or open_registry(settings), loop_clock(), Metrics("bin", ORIGINS, counted)
    worker_factory, close = (worker_factory, _nothing) if worker_factory else open_pool(settings)
    source = Source(registry, settings.alias, BINS_PREFIX, load_catalog)
    same = SameDevice("streams", settings.any_profile)
    builder = Builder(settings, clock, metrics, worker_factory, partial(blueprint, settings), same)
    try:
        refresher = await follow(source, builder.start, settings.refresh_seconds, metrics)
    except BaseException:
        close()
        raise
    endpoint = BinsEndpoint(Dependencies(settings, refresher, metrics, clock))
    return Assembly(endpoint, refresher, asyncio.create_task(refresher.poller.run()), close)


def open_pool(settings: BinsSettings) -> tuple[WorkerFactory, Callable[[], None]]:
    """Where devices come from, and what ends that. Raises `WorkerError` where Ray cannot be reached."""
    if settings.pool == "processes":
        return ProcessWorker, _nothing
    from serving.workers.ray_pool import RayPool

    pool = RayPool(settings.ray_address, Resources(num_gpus=float(settings.device.startswith("cuda"))))
    return pool.worker_factory, pool.close


def blueprint(settings: BinsSettings, catalog: Catalog) -> Blueprint[Way]:
    return Blueprint(
        scheduler=make_scheduler(settings, catalog),
        ways=ways(catalog),
        builds=[build_plan(settings, catalog, worker) for worker in range(settings.workers)],
        names=[f"{stream}/{bin_name(shape)}" for stream, shape in catalog.shapes],
        waiting=lambda driver: driver.waiting,
    )


def make_scheduler(settings: BinsSettings, catalog: Catalog) -> BinsScheduler:
    """The settings' most waiting requests are shared out evenly to the workers."""
    config = Config(
        workers=settings.workers,
        dispatch=settings.dispatch,
        margin=settings.margin,
        max_waiting=-(-settings.max_waiting // settings.workers),
        deployed=deployed(settings, catalog),
        scaling=Scaling(least=settings.least_workers) if settings.least_workers else None,
    )
    return make(settings.policy, catalog.plans, config)


def deployed(settings: BinsSettings, catalog: Catalog) -> tuple[int, ...]:
    """Under placement "single" the runtime that each worker begins with, by its number in the scheduler's knowledge."""
    return () if catalog.placement == "shared" else tuple(start_plan(knowledge_of(catalog.plans), settings.workers))


def build_plan(settings: BinsSettings, catalog: Catalog, worker: int) -> BinsBuild:
    """What the device of one worker is told."""
    insisted = None if settings.any_profile else catalog.device
    every = devices(settings)
    plan = DevicePlan(every[worker % len(every)], settings.threads, insisted, ())
    streams = tuple(_stream_build(settings, served) for served in catalog.streams.values())
    return BinsBuild(streams, catalog.placement, _first(settings, catalog, worker), plan)


def compiled(settings: BinsSettings, served: ServedStream) -> Path:
    """The folder of a stream's compiled files."""
    return cache_folder(settings.home, served.encoder.digest, served.bins.device_class)


def _first(settings: BinsSettings, catalog: Catalog, worker: int) -> int | None:
    begun = deployed(settings, catalog)
    return knowledge_of(catalog.plans).runtimes[begun[worker]].settings[0] if begun else None


def _stream_build(settings: BinsSettings, served: ServedStream) -> StreamBuild:
    bins, encoder = served.bins, served.encoder
    folder = compiled(settings, served)
    return StreamBuild(encoder.folder, encoder.digest, bins.engine, bins.shapes, folder, dict(bins.files))


def _nothing() -> None:
    pass
