"""Assembles the bins service: turns settings and artifacts into a scheduler, build plans and an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from pliant.bins.artifact import check_device
from pliant.bins.knowledge import Config, Scaling, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.policies import make
from pliant.bins.runtimes.cache import cache_folder, verify
from pliant.bins.scheduler import BinsScheduler
from pliant.errors import WorkerError
from pliant.serving.bins.catalog import Catalog, ServedStream, load_catalog
from pliant.serving.bins.endpoint import BinsEndpoint, Handler, bin_name, handlers_of
from pliant.serving.bins.messages import BinsBuild, StreamBuild
from pliant.serving.bins.metric_list import ORIGINS
from pliant.serving.bins.settings import BinsSettings
from pliant.serving.lifecycle.catalog import Artifacts
from pliant.serving.lifecycle.system import Blueprint, Dependencies, ServedSystem, WorkerFactory
from pliant.serving.workers.devices import DevicePlan, device_of
from pliant.serving.workers.ray_workers import Resources


class BinsSystem(ServedSystem[BinsSettings, Catalog, Handler, BinsEndpoint]):
    profiled, setting, origins = "streams", "bin", ORIGINS

    def load(self, registry: Artifacts, alias: str, running: Catalog | None) -> Catalog:
        return load_catalog(registry, alias, running)

    def blueprint(self, catalog: Catalog) -> Blueprint[Handler]:
        names = [f"{stream}/{bin_name(shape)}" for stream, shape in catalog.shapes]
        return Blueprint(
            make_scheduler=partial(make_scheduler, self.settings, catalog),
            handlers=handlers_of(catalog),
            builds=[build_plan(self.settings, catalog, worker) for worker in range(self.settings.workers)],
            setting_name=names.__getitem__,
        )

    def endpoint(self, parts: Dependencies[Catalog, Handler]) -> BinsEndpoint:
        return BinsEndpoint(self.settings, parts.refresher, parts.metrics, parts.clock)

    def check_catalog(self, catalog: Catalog) -> None:
        """Check that this machine can serve the catalog; on Ray's nodes devices and compiled files are checked later,
        when they start. Raises `PliantError`.
        """
        settings = self.settings
        if settings.pool == "ray":
            self.blueprint(catalog).make_scheduler()
            if find_spec("ray") is None:
                raise WorkerError("the pool is ray, but Ray is missing here: pip install -e '.[ray]'")
            return
        super().check_catalog(catalog)
        for served in catalog.tasks.values():
            check_device(served.bins.engine, process_device(settings, 0))
            verify(compiled(settings, served), served.bins.files)

    def open_pool(self) -> tuple[WorkerFactory, Callable[[], None]]:
        if self.settings.pool == "processes":
            return super().open_pool()
        from pliant.serving.workers.ray_workers import RayPool

        gpus = float(process_device(self.settings, 0) == "cuda")
        pool = RayPool(self.settings.ray_address, Resources(num_gpus=gpus))
        return pool.make_worker, pool.close


SERVED = BinsSystem


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
    streams, first = [], None
    for served in catalog.tasks.values():
        bins, encoder, folder = served.bins, served.encoder, compiled(settings, served)
        files = dict(bins.files)
        streams.append(
            StreamBuild(encoder.folder, encoder.digest, bins.engine, bins.shapes, folder, files, bins.precision)
        )
    if runtimes := deployed(settings, catalog):
        first = knowledge_of(catalog.plans).runtimes[runtimes[worker]].settings[0]
    return BinsBuild(tuple(streams), catalog.placement, first, plan)


def process_device(settings: BinsSettings, worker: int) -> str:
    """Return how the process of one worker calls its device.

    On Ray's nodes it is "cuda" or "cpu", whatever number was named: an actor sees no GPU but the one that Ray gives it.
    """
    name = device_of(settings, worker)
    return name.partition(":")[0] if settings.pool == "ray" else name


def compiled(settings: BinsSettings, served: ServedStream) -> Path:
    """Return the folder of a stream's compiled files."""
    return cache_folder(settings.home, served.encoder.digest, served.bins.device_class)
