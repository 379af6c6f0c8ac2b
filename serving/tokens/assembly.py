"""Assembles the tokens service: turns settings and artifacts into a scheduler, a build plan and an endpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.registry.names import TOKENS_PREFIX
from pliant.serving.clock import loop_clock
from pliant.serving.lifecycle import assembly
from pliant.serving.lifecycle.artifacts import Artifacts, Registry, open_registry
from pliant.serving.lifecycle.assembly import Assembly, Blueprint, WorkerFactory, generation_maker
from pliant.serving.metrics import Metrics
from pliant.serving.outcomes.outcomes import open_outcomes
from pliant.serving.tokens.catalog import Catalog, TaskInfo, load_catalog
from pliant.serving.tokens.endpoint import TokensEndpoint
from pliant.serving.tokens.messages import TokensBuild
from pliant.serving.tokens.metric_list import ORIGINS
from pliant.serving.tokens.observed import NAMES
from pliant.serving.tokens.pins import Pins
from pliant.serving.tokens.registration import Origins, Registrar, TokensSource
from pliant.serving.tokens.settings import TokensSettings
from pliant.serving.watch.watcher import WatchMetrics
from pliant.serving.workers.device_plan import DevicePlan
from pliant.serving.workers.device_process import Build
from pliant.serving.workers.devices import SameDevice, check_devices, devices
from pliant.serving.workers.worker import ProcessWorker
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options, TokensScheduler

LEAD = 0.005  # seconds before a device's expected end at which its next batch is sent: packing 64 images takes as long
WARM_BATCH = 16  # every gamma runs once with this batch size and once with 1 before the first request


def check(settings: TokensSettings) -> None:
    """Check settings, artifacts and devices before the service starts. Raises `PliantError`."""
    catalog = source_of(settings).load(None).catalog
    make_scheduler(settings, make_knowledge(settings, catalog))
    check_devices(settings, catalog)


def source_of(
    settings: TokensSettings, registry: Registry | None = None, counted: CollectorRegistry | None = None
) -> TokensSource:
    """Return where the catalogs come from: `registry`, or the one that the settings name. `counted`: where pins are."""
    registry = registry or open_registry(settings)
    return TokensSource(registry, settings.alias, TOKENS_PREFIX, partial(load, settings), Pins(counted))


async def assemble(
    settings: TokensSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory = ProcessWorker,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[TokensEndpoint, Catalog, TaskInfo]:
    """Return a running service, whose model has run at every gamma. Raises `PliantError`."""
    clock, metrics = loop_clock(), Metrics("gamma", ORIGINS, counted)
    origins: Origins = {}
    source = source_of(settings, registry, counted)
    registrar = Registrar(partial(rebuilt, settings), partial(make_knowledge, settings), source, origins)
    outcomes = open_outcomes(settings, counted, NAMES)
    return await assembly.assemble(
        source,
        generation_maker(settings, clock, metrics, worker_factory, partial(blueprint, settings, origins)),
        SameDevice("models", settings.any_profile),
        lambda refresher: TokensEndpoint(settings, refresher, registrar, origins, metrics, clock, outcomes),
        settings,
        metrics,
        clock,
        registrar.extend,
        watched=WatchMetrics(counted),
        close=outcomes.close,
    )


def load(settings: TokensSettings, registry: Artifacts, alias: str, running: Catalog | None = None) -> Catalog:
    """Return the catalog. Raises as `load_catalog`, and `InputError` for a gamma that was not profiled."""
    catalog = load_catalog(registry, alias, running)
    settings.used(catalog.knowledge().latency.settings)
    return catalog


def blueprint(settings: TokensSettings, origins: Origins, catalog: Catalog) -> Blueprint[TaskInfo]:
    """Return what a generation of this catalog needs, and add the catalog's `origins`."""
    knowledge = make_knowledge(settings, catalog)
    origins.update(catalog.origins)
    return Blueprint(
        make_scheduler=partial(make_scheduler, settings, knowledge),
        handlers=catalog.tasks_described(),
        builds=[build_plan(settings, catalog, device) for device in devices(settings)],
        waiting=lambda driver: cast(TokensScheduler, driver.scheduler).waiting,
        ahead=True,
        facts=knowledge.plain(),
        limited=True,
    )


def make_knowledge(settings: TokensSettings, catalog: Catalog) -> Knowledge:
    """Return what the scheduler knows of a catalog and of the devices that serve it."""
    return replace(catalog.knowledge(), devices=tuple(devices(settings)), lead=LEAD)


def make_scheduler(settings: TokensSettings, knowledge: Knowledge) -> TokensScheduler:
    """Return the scheduler of all devices. Each may have an equal share of the waiting requests, rounded up."""
    workers = len(knowledge.devices)
    options = Options(margin=settings.margin, max_waiting=-(-settings.max_waiting // workers))
    return make(settings.policy, knowledge, workers, settings.gamma, options)


def rebuilt(settings: TokensSettings, catalog: Catalog, former: TokensBuild) -> Build:
    """Return the build plan of a device process that serves this catalog where it served another before."""
    return build_plan(settings, catalog, former.plan.device)


def build_plan(settings: TokensSettings, catalog: Catalog, device: str) -> Build:
    """Return the build plan of the process of one device. Raises as `TokensSettings.used`."""
    latency = catalog.knowledge().latency
    required_device = None if settings.any_profile else catalog.device
    plan = DevicePlan(device, settings.threads, required_device, (1, min(WARM_BATCH, latency.batches[-1])))
    gammas, precision = tuple(settings.used(latency.settings)), catalog.profile.precision
    return TokensBuild(catalog.folder, catalog.backbone_digest, tuple(catalog.tasks.values()), gammas, plan, precision)
