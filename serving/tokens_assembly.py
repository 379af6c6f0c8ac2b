"""Puts the tokens service together: registry, scheduler, worker, driver, metrics, endpoint.

The one place that turns settings and artifacts into a scheduler's configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pliant.errors import InputError
from pliant.protocol import JournalEntry
from pliant.tokens.scheduler import TokensConfig, TokensScheduler
from registry.mlflow_store import MlflowRegistry
from serving.driver import Driver, Limits, Record, loop_clock
from serving.journal import FileRecorder
from serving.metrics import Metrics
from serving.settings import Settings
from serving.tokens_catalog import Catalog, Registry, load_catalog
from serving.tokens_endpoint import Parts, TokensEndpoint
from serving.tokens_payload import TokensBuild
from serving.workers import ProcessWorker

WARM_BATCH = 16  # the larger of the two batch sizes that every gamma runs once before the first request


@dataclass(frozen=True, slots=True)
class Assembly:
    endpoint: TokensEndpoint
    driver: Driver
    recorder: FileRecorder | None

    async def stop(self) -> None:
        await self.driver.stop()
        if self.recorder is not None:
            self.recorder.close()


async def assemble(settings: Settings) -> Assembly:
    """A service whose model has run at every gamma. Raises `PliantError`."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    config = scheduler_config(settings, catalog)
    scheduler = TokensScheduler(config, workers=1)
    metrics = Metrics("gamma")
    recorder = FileRecorder(settings.journal) if settings.journal else None
    worker = ProcessWorker(build_plan(settings, catalog, config.gammas))
    record = _record(scheduler, metrics, recorder)
    driver = Driver(scheduler, [worker], record, loop_clock(), Limits(launch=settings.launch_limit))
    await driver.start()
    parts = Parts(settings, catalog, config.gammas, scheduler, driver, metrics, lambda: open_registry(settings))
    return Assembly(TokensEndpoint(parts), driver, recorder)


def _record(scheduler: TokensScheduler, metrics: Metrics, recorder: FileRecorder | None) -> Record:
    def record(entry: JournalEntry) -> None:
        metrics.observe(entry)
        metrics.waiting(scheduler.waiting)
        if recorder is not None:
            recorder(entry)

    return record


def open_registry(settings: Settings) -> Registry:
    return MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))


def scheduler_config(settings: Settings, catalog: Catalog) -> TokensConfig:
    """Policy "fixed" is the same scheduler with one gamma. Raises `InputError` for a gamma that was not profiled."""
    profile = catalog.profile
    profiled = profile.latency.settings
    gammas = profiled if settings.policy == "default" else (settings.gamma,)
    if not set(gammas) <= set(profiled):
        raise InputError("PLIANT_GAMMA", settings.gamma, f"one of the profiled {list(profiled)}")
    return TokensConfig(
        latency=profile.latency,
        accuracy={name: served.task.accuracy for name, served in catalog.tasks.items()},
        rule=profile.rule,
        gammas=gammas,
        max_waiting=settings.max_waiting,
    )


def build_plan(settings: Settings, catalog: Catalog, gammas: tuple[int, ...]) -> TokensBuild:
    """What the device process is told."""
    return TokensBuild(
        folder=catalog.folder,
        digest=catalog.backbone_digest,
        tasks=tuple(catalog.tasks.values()),
        device=settings.device,
        threads=settings.threads,
        profiled_on=None if settings.any_profile else catalog.profile.device,
        gammas=gammas,
        warm_batches=(1, min(WARM_BATCH, catalog.profile.latency.batches[-1])),
    )
