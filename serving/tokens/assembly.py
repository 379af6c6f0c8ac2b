"""Puts the tokens service together: registry, scheduler, worker, driver, what is live, metrics, endpoint.

The one place that turns settings and artifacts into a scheduler and into a device process's build plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.errors import InputError
from pliant.tokens.policies import FIXED, make
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options, TokensScheduler
from serving.clock import loop_clock
from serving.driver import Driver, Limits
from serving.journal import FileRecorder
from serving.lifecycle.artifacts import Registry, open_registry
from serving.lifecycle.assembly import end, recording
from serving.metrics import Metrics
from serving.tokens.catalog import Catalog, Servable, load_catalog
from serving.tokens.endpoint import ORIGINS, Dependencies, TokensEndpoint
from serving.tokens.live import Live
from serving.tokens.messages import TokensBuild, VariantsBuild
from serving.tokens.refresh import Refresher
from serving.tokens.settings import TokensSettings
from serving.tokens.variants import VariantCatalog, load_variants
from serving.workers.device_plan import DevicePlan
from serving.workers.device_process import Build
from serving.workers.worker import ProcessWorker

WARM_BATCH = 16  # the larger of the two batch sizes that every gamma runs once before the first request


@dataclass(frozen=True, slots=True)
class Assembly:
    endpoint: TokensEndpoint
    driver: Driver
    polling: asyncio.Task[None]  # of the registry
    recorder: FileRecorder | None

    async def stop(self) -> None:
        await end(self.polling)
        await self.driver.stop()
        if self.recorder is not None:
            self.recorder.close()


def check(settings: TokensSettings) -> None:
    """What launch.py's `check` says, for this system."""
    catalog = load(open_registry(settings), settings)
    make_scheduler(settings, catalog.knowledge())
    if not settings.any_profile:
        from serving.workers.on_device import check_device

        check_device(catalog.device, settings.device, settings.threads)


async def assemble(settings: TokensSettings) -> Assembly:
    """A service whose model has run at every gamma. Raises `PliantError`."""
    registry = open_registry(settings)
    catalog = load(registry, settings)
    scheduler = make_scheduler(settings, catalog.knowledge())
    metrics = Metrics("gamma", ORIGINS)
    recorder = FileRecorder(settings.journal) if settings.journal else None
    record = recording(metrics, lambda: scheduler.waiting, recorder)
    worker = ProcessWorker(build_plan(settings, catalog))
    limits = Limits(launch=settings.launch_limit)
    driver = Driver(scheduler, [worker], record, loop_clock(), limits, metrics.died_idle)
    await driver.start()
    live = Live(catalog, driver, lambda other: build_plan(settings, other), ProcessWorker, settings.any_profile)
    live.tell()
    refresher = Refresher(live, registry, settings.alias, settings.refresh_seconds, metrics)
    parts = Dependencies(settings, driver, live, refresher, metrics, lambda other: used_settings(settings, other))
    return Assembly(TokensEndpoint(parts), driver, asyncio.create_task(refresher.run()), recorder)


def load(registry: Registry, settings: TokensSettings) -> Servable:
    """What the policy needs. Raises as `load_catalog` or `load_variants`, and `InputError` for a gamma that is not there."""
    if settings.policy == "infaas":
        return load_variants(registry, settings.alias)
    catalog = load_catalog(registry, settings.alias)
    used_settings(settings, catalog)
    return catalog


def make_scheduler(settings: TokensSettings, knowledge: Knowledge) -> TokensScheduler:
    options = Options(margin=settings.margin, max_waiting=settings.max_waiting)
    return make(settings.policy, knowledge, workers=1, gamma=settings.gamma, options=options)


def used_settings(settings: TokensSettings, catalog: Servable) -> Sequence[int]:
    """The gammas, or numbers of variants, that the policy may use. Raises `InputError` for one that was not profiled."""
    profiled = catalog.knowledge().latency.settings
    gamma = FIXED.get(settings.policy) if settings.gamma is None else settings.gamma
    if gamma is None:
        return profiled
    if gamma not in profiled:
        raise InputError("PLIANT_GAMMA", gamma, f"one of the profiled {list(profiled)}")
    return (gamma,)


def build_plan(settings: TokensSettings, catalog: Servable) -> Build:
    """What a device process is told. Raises as `used_settings`."""
    largest = catalog.knowledge().latency.batches[-1]
    insisted = None if settings.any_profile else catalog.device
    plan = DevicePlan(settings.device, settings.threads, insisted, (1, min(WARM_BATCH, largest)))
    if isinstance(catalog, VariantCatalog):
        return VariantsBuild(tuple((variant.folder, variant.digest) for variant in catalog.variants), plan)
    assert isinstance(catalog, Catalog), "there are two kinds"
    gammas = tuple(used_settings(settings, catalog))
    return TokensBuild(catalog.folder, catalog.backbone_digest, tuple(catalog.tasks.values()), gammas, plan)
