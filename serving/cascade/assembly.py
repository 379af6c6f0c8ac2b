"""Assembles the cascade service: turns settings and artifacts into a scheduler, build plans and an endpoint."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import cast

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.cascade.knowledge import Knowledge, knowledge, numbers, prunes
from pliant.cascade.scheduler import CascadeScheduler, Options
from pliant.registry.names import CASCADE_PREFIX
from pliant.serving.cascade.agreement import AgreementCounter
from pliant.serving.cascade.catalog import Catalog, load_catalog
from pliant.serving.cascade.endpoint import CascadeEndpoint
from pliant.serving.cascade.messages import CascadeBuild, ModelBuild
from pliant.serving.cascade.metric_list import ORIGINS
from pliant.serving.cascade.reading import Handler, handler_of, read
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.clock import loop_clock
from pliant.serving.lifecycle import assembly
from pliant.serving.lifecycle.artifacts import Registry, open_registry
from pliant.serving.lifecycle.assembly import Assembly, Blueprint, WorkerFactory, generation_maker
from pliant.serving.lifecycle.refresh import Source
from pliant.serving.metrics import Metrics
from pliant.serving.outcomes.outcomes import open_outcomes
from pliant.serving.watch.watcher import WatchMetrics
from pliant.serving.workers.device_plan import DevicePlan
from pliant.serving.workers.devices import SameDevice, check_devices, device_of
from pliant.serving.workers.worker import ProcessWorker

WARM_BATCHES = (1, 16)  # every classifier runs these batch sizes before the first request


def check(settings: CascadeSettings) -> None:
    """Check settings, artifacts and devices before the service starts. Raises `PliantError`."""
    catalog = source_of(settings).load(None).catalog
    make_scheduler(settings, make_knowledge(settings, catalog))
    for served in catalog.tasks.values():
        handler_of(served)
    check_devices(settings, catalog)


def source_of(settings: CascadeSettings, registry: Registry | None = None) -> Source[Catalog]:
    """Return where the catalogs come from: `registry`, or the one that the settings name."""
    return Source(registry or open_registry(settings), settings.alias, CASCADE_PREFIX, load_catalog)


async def assemble(
    settings: CascadeSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory = ProcessWorker,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[CascadeEndpoint, Catalog, Handler]:
    """Return a running service, whose models have run. Raises `PliantError`."""
    clock, metrics, source = loop_clock(), Metrics("model", ORIGINS, counted), source_of(settings, registry)
    outcomes = open_outcomes(settings, counted)
    assembled = await assembly.assemble(
        source,
        generation_maker(settings, clock, metrics, worker_factory, partial(blueprint, settings)),
        SameDevice("tasks", settings.any_profile),
        lambda refresher: CascadeEndpoint(settings, refresher, metrics, outcomes, clock, AgreementCounter(counted)),
        settings,
        metrics,
        clock,
        watched=WatchMetrics(counted),
        close=outcomes.close,
    )
    comparing = asyncio.create_task(assembled.endpoint.agreement.run())
    return replace(assembled, polling=(*assembled.polling, comparing))


def blueprint(settings: CascadeSettings, catalog: Catalog) -> Blueprint[Handler]:
    """Return what a generation of this catalog needs."""
    return Blueprint(
        make_scheduler=lambda: make_scheduler(settings, make_knowledge(settings, catalog)),
        handlers={name: handler_of(served) for name, served in catalog.tasks.items()},
        builds=[build_plan(settings, catalog, worker) for worker in range(settings.workers)],
        setting_name=model_names(catalog).__getitem__,
        waiting=lambda driver: cast(CascadeScheduler, driver.scheduler).waiting,
        read=read,
    )


def make_knowledge(settings: CascadeSettings, catalog: Catalog) -> Knowledge:
    return knowledge(catalog.cascades, settings.workers, settings.placement == "own")


def make_scheduler(settings: CascadeSettings, known: Knowledge) -> CascadeScheduler:
    options = Options(margin=settings.margin, max_waiting=settings.max_waiting)
    return CascadeScheduler(known, settings.workers, options)


def build_plan(settings: CascadeSettings, catalog: Catalog, worker: int) -> CascadeBuild:
    """Return the build plan of one worker's device process, with the classifiers that it may run."""
    models, known = [], make_knowledge(settings, catalog).models
    for (task, level), number in numbers(catalog.cascades).items():
        served = catalog.tasks[task]
        if worker in known[number].workers:
            model = served.levels[level]
            pruning, precision = level in prunes(served.cascade), served.cascade.precision
            models.append(ModelBuild(number, model.folder, model.digest, pruning, precision))
    required_device = None if settings.any_profile else catalog.device
    plan = DevicePlan(device_of(settings, worker), settings.threads, required_device, WARM_BATCHES)
    return CascadeBuild(tuple(models), plan)


def model_names(catalog: Catalog) -> list[str]:
    """Return the label of each model in metrics, by its number."""
    return [f"{cascade.task}/{level.name}" for cascade in catalog.cascades for level in cascade.levels]
