"""Assembles the bins service: turns settings and artifacts into a scheduler, build plans and an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.bins.artifact import check_device
from pliant.bins.knowledge import Config, Scaling, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.policies import make
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import WorkerError
from pliant.registry.names import BINS_PREFIX
from pliant.serving.bins.catalog import Catalog, ServedStream, load_catalog
from pliant.serving.bins.endpoint import BinsEndpoint, Handler, bin_name, handlers_of
from pliant.serving.bins.messages import BinsBuild, StreamBuild
from pliant.serving.bins.metric_list import ORIGINS
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.clock import loop_clock
from pliant.serving.lifecycle import assembly
from pliant.serving.lifecycle.artifacts import Registry, open_registry
from pliant.serving.lifecycle.assembly import Assembly, Blueprint, WorkerFactory, generation_maker
from pliant.serving.lifecycle.refresh import Source
from pliant.serving.metrics import Metrics
from pliant.serving.watch.watcher import WatchMetrics
from pliant.serving.workers.device_plan import DevicePlan
from pliant.serving.workers.devices import SameDevice, check_devices, device_of
from pliant.serving.workers.ray_cluster import Resources
from pliant.serving.workers.worker import ProcessWorker


def check(settings: BinsSettings) -> None:
    """Check settings, artifacts and devices before the service starts. Raises `PliantError`.

    Devices and compiled files on Ray's nodes are checked there, when they start.
    """
    catalog = source_of(settings).load(None).catalog
    make_scheduler(settings, catalog)
    handlers_of(catalog)
    if settings.pool == "ray":
        if find_spec("ray") is None:
            raise WorkerError("the pool is ray, but Ray is missing here: pip install -e '.[ray]'")
        return
    check_devices(settings, catalog)
    for served in catalog.streams.values():
        check_device(served.bins.engine, process_device(settings, 0))
        verify(compiled(settings, served), served.bins.files)


def source_of(settings: BinsSettings, registry: Registry | None = None) -> Source[Catalog]:
    """Return where the catalogs come from: `registry`, or the one that the settings name."""
    return Source(registry or open_registry(settings), settings.alias, BINS_PREFIX, load_catalog)


async def assemble(
    settings: BinsSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory | None = None,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[BinsEndpoint, Catalog, Handler]:
    """Return a running service, whose models have run. Raises `PliantError`."""
    clock, metrics = loop_clock(), Metrics("bin", ORIGINS, counted)
    worker_factory, close = (worker_factory, _nothing) if worker_factory else open_pool(settings)
    return await assembly.assemble(
        source_of(settings, registry),
        generation_maker(settings, clock, metrics, worker_factory, partial(blueprint, settings)),
        SameDevice("streams", settings.any_profile),
        lambda refresher: BinsEndpoint(settings, refresher, metrics, clock),
        settings,
        metrics,
        clock,
        watched=WatchMetrics(counted),
        close=close,
    )


def open_pool(settings: BinsSettings) -> tuple[WorkerFactory, Callable[[], None]]:
    """Return a function that makes workers, and one that closes their pool. Raises `WorkerError` if Ray fails."""
    if settings.pool == "processes":
        return ProcessWorker, _nothing
    from pliant.serving.workers.ray_pool import RayPool

    pool = RayPool(settings.ray_address, Resources(num_gpus=float(process_device(settings, 0) == "cuda")))
    return pool.make_worker, pool.close


def blueprint(settings: BinsSettings, catalog: Catalog) -> Blueprint[Handler]:
    """Return what a generation of this catalog needs."""
    names = [f"{stream}/{bin_name(shape)}" for stream, shape in catalog.shapes]
    return Blueprint(
        make_scheduler=partial(make_scheduler, settings, catalog),
        handlers=handlers_of(catalog),
        builds=[build_plan(settings, catalog, worker) for worker in range(settings.workers)],
        setting_name=names.__getitem__,
        waiting=lambda driver: cast(BinsScheduler, driver.scheduler).waiting,
    )


def make_scheduler(settings: BinsSettings, catalog: Catalog) -> BinsScheduler:
    """Return the scheduler. Each worker may have an equal share of the waiting requests, rounded up."""
    config = Config(
        workers=settings.workers,
        dispatch=settings.dispatch,
        margin=settings.margin,
        max_waiting=-(-settings.max_waiting // settings.workers),
        deployed=deployed(settings, catalog),
        scaling=Scaling(min_devices=settings.least_workers) if settings.least_workers else None,
    )
    return make(settings.policy, catalog.plans, config)


def deployed(settings: BinsSettings, catalog: Catalog) -> tuple[int, ...]:
    """Return the first runtime of each worker under the placement "single", by its number; empty under "shared"."""
    return () if catalog.placement == "shared" else tuple(start_plan(knowledge_of(catalog.plans), settings.workers))


def build_plan(settings: BinsSettings, catalog: Catalog, worker: int) -> BinsBuild:
    """Return the build plan of one worker's device."""
    required_device = None if settings.any_profile else catalog.device
    plan = DevicePlan(process_device(settings, worker), settings.threads, required_device, ())
    streams = tuple(_stream_build(settings, served) for served in catalog.streams.values())
    return BinsBuild(streams, catalog.placement, _first(settings, catalog, worker), plan)


def process_device(settings: BinsSettings, worker: int) -> str:
    """Return how the process of one worker calls its device.

    On Ray's nodes it is "cuda" or "cpu", whatever number was named: an actor sees no GPU but the one that Ray gives it.
    """
    name = device_of(settings, worker)
    return name.partition(":")[0] if settings.pool == "ray" else name


def compiled(settings: BinsSettings, served: ServedStream) -> Path:
    """Return the folder of a stream's compiled files."""
    return cache_folder(settings.home, served.encoder.digest, served.bins.device_class)


def _first(settings: BinsSettings, catalog: Catalog, worker: int) -> int | None:
    runtimes = deployed(settings, catalog)
    return knowledge_of(catalog.plans).runtimes[runtimes[worker]].settings[0] if runtimes else None


def _stream_build(settings: BinsSettings, served: ServedStream) -> StreamBuild:
    bins, encoder = served.bins, served.encoder
    folder = compiled(settings, served)
    files = dict(bins.files)
    return StreamBuild(encoder.folder, encoder.digest, bins.engine, bins.shapes, folder, files, bins.precision)


def _nothing() -> None:
    pass
