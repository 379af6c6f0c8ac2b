"""Puts the cascade service together: registry, generations with their schedulers and workers, refresher, endpoint.

The one place that turns settings and artifacts into a scheduler and into a device process's build plan.
"""

from __future__ import annotations

import asyncio
from functools import partial

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.cascade.knowledge import Knowledge, knowledge, numbers, prunes
from pliant.cascade.scheduler import CascadeScheduler, Options
from registry.names import CASCADE_PREFIX
from serving.cascade.catalog import Catalog, load_catalog
from serving.cascade.endpoint import ORIGINS, CascadeEndpoint, Dependencies
from serving.cascade.messages import CascadeBuild, ModelBuild
from serving.cascade.outcomes import Outcomes
from serving.cascade.reading import Way, read, way
from serving.cascade.settings import CascadeSettings
from serving.clock import loop_clock
from serving.lifecycle.artifacts import Registry, open_registry
from serving.lifecycle.assembly import Assembly, Blueprint, Builder, WorkerFactory
from serving.lifecycle.refresh import Source, follow
from serving.metrics import Metrics
from serving.workers.device_plan import DevicePlan
from serving.workers.devices import SameDevice, check_devices, devices
from serving.workers.worker import ProcessWorker

WARM_BATCHES = (1, 16)  # that every classifier runs before the first request


def check(settings: CascadeSettings) -> None:
    """What launch.py's `check` says, for this system."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    make_scheduler(settings, make_knowledge(settings, catalog))
    for served in catalog.tasks.values():
        way(served)
    check_devices(settings, catalog)


async def assemble(
    settings: CascadeSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory = ProcessWorker,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[CascadeEndpoint, Catalog, Way]:
    """A service whose models have run. Raises `PliantError`."""
    registry, clock, metrics = registry or open_registry(settings), loop_clock(), Metrics("model", ORIGINS, counted)
    source = Source(registry, settings.alias, CASCADE_PREFIX, load_catalog)
    same = SameDevice("tasks", settings.any_profile)
    builder = Builder(settings, clock, metrics, worker_factory, partial(blueprint, settings), same)
    refresher = await follow(source, builder.start, settings.refresh_seconds, metrics)
    parts = Dependencies(settings, refresher, metrics, Outcomes(counted), clock)
    return Assembly(CascadeEndpoint(parts), refresher, asyncio.create_task(refresher.poller.run()))


def blueprint(settings: CascadeSettings, catalog: Catalog) -> Blueprint[Way]:
    scheduler = make_scheduler(settings, make_knowledge(settings, catalog))
    return Blueprint(
        scheduler=scheduler,
        ways={name: way(served) for name, served in catalog.tasks.items()},
        builds=[build_plan(settings, catalog, worker) for worker in range(settings.workers)],
        names=model_names(catalog),
        waiting=lambda _: scheduler.waiting,
        read=read,
    )


def make_knowledge(settings: CascadeSettings, catalog: Catalog) -> Knowledge:
    return knowledge(catalog.cascades, settings.workers, settings.placement == "own")


def make_scheduler(settings: CascadeSettings, known: Knowledge) -> CascadeScheduler:
    options = Options(margin=settings.margin, max_waiting=settings.max_waiting)
    return CascadeScheduler(known, settings.workers, options)


def build_plan(settings: CascadeSettings, catalog: Catalog, worker: int) -> CascadeBuild:
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


def model_names(catalog: Catalog) -> list[str]:
    """What metrics call the models, by their numbers."""
    return [f"{cascade.task}/{level.name}" for cascade in catalog.cascades for level in cascade.levels]
