"""Assembles the packing service: turns settings and artifacts into engines, forecasters and an endpoint.

A new champion starts beside the present one and receives all new requests, while the former one finishes its outputs. Both
must fit into the device's memory meanwhile; if they do not, the refresh fails with that message, and the service goes on as
before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from prometheus_client import CollectorRegistry

from pliant.errors import InputError
from pliant.outcomes.files import observed_path
from pliant.packing.scheduling.policies import BY_NAME
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import rules_of
from pliant.packing.scheduling.request import check_fits
from pliant.packing.scheduling.targets import Admission
from pliant.serving.driver import Clock
from pliant.serving.lifecycle.catalog import Artifacts
from pliant.serving.lifecycle.generation import Generation, numbered_journal
from pliant.serving.lifecycle.system import Dependencies, Make, ServedSystem, check_devices
from pliant.serving.packing.catalog import Catalog, ServedModel, load_catalog
from pliant.serving.packing.endpoint import EnginePool, Handler, PackingEndpoint, PackingGeneration
from pliant.serving.packing.engine.engine import EngineDriver, EngineGroup, EngineLimits, SequenceLimit
from pliant.serving.packing.engine.engine_process import (
    Build,
    EngineBuild,
    EngineProcess,
    PredictorBuild,
    VllmBuild,
)
from pliant.serving.packing.engine.forecaster import Forecaster, ForecastLimits
from pliant.serving.packing.engine.metrics import PackingMetrics
from pliant.serving.packing.engine.observed import ObservedLengths
from pliant.serving.packing.settings import PackingSettings
from pliant.serving.packing.text import PromptReader
from pliant.serving.packing.vllm.engine import interpreter_of
from pliant.serving.workers.devices import DevicePlan, devices, free_memory
from pliant.serving.workers.worker import ProcessWorker, Worker

logger = logging.getLogger("pliant.serving")

WorkerFactory = Callable[[Callable[[], Build]], EngineProcess]
"""Makes a worker, not started, that gets its build plan at each start."""
PredictorFactory = Callable[[PredictorBuild], Worker]
"""Makes the worker of a predictor, not started."""
PREDICTOR_THREADS = 1  # of torch: the engine has the other cores


class PackingSystem(ServedSystem[PackingSettings, Catalog, Handler, PackingEndpoint, EnginePool]):
    profiled = "models"

    def __init__(self, settings: PackingSettings, predictors: PredictorFactory = ProcessWorker) -> None:
        super().__init__(settings)
        self._predictors = predictors

    def load(self, registry: Artifacts, alias: str, running: Catalog | None) -> Catalog:
        return load_catalog(registry, alias, running)

    def check_catalog(self, catalog: Catalog) -> None:
        """Raise `InputError`, too, for a model whose weights and pages need more than one of its devices has free now."""
        settings = self.settings
        for served in catalog.tasks.values():
            rules(settings, served)
            PromptReader(served.generator.artifact, served.context)
        if settings.engine == "vllm":
            interpreter_of(settings.home)
        check_sharing(settings, catalog)
        check_devices(settings, catalog)
        if settings.processes > 1:  # what several processes share is not counted here
            return
        for name, used in placed(settings, catalog).items():
            served = catalog.tasks[name]
            weights = sum(file.stat().st_size for file in served.generator.folder.rglob("*") if file.is_file())
            for device in dict.fromkeys(used):
                free = free_memory(device) // used.count(device)
                check_fits(served.packing.memory, served.packing.kv_bytes, weights, free, device)

    def open_pool(self) -> tuple[WorkerFactory, Callable[[], None]]:
        return EngineProcess, lambda: None

    def new_clock(self) -> Clock:
        return time.monotonic  # the engines' processes read the same clock, which deadlines are on

    def new_metrics(self, counted: CollectorRegistry) -> PackingMetrics:
        return PackingMetrics(counted)

    def maker(
        self, clock: Clock, metrics: PackingMetrics, workers: WorkerFactory
    ) -> Make[Catalog, Handler, EnginePool]:
        return Maker(self.settings, clock, metrics, workers, self._predictors).make

    def endpoint(self, parts: Dependencies[Catalog, Handler, EnginePool]) -> PackingEndpoint:
        return PackingEndpoint(self.settings, parts.refresher, parts.metrics, parts.clock)


SERVED = PackingSystem


def check_sharing(settings: PackingSettings, catalog: Catalog) -> None:
    """Raise `InputError` for several models where each would need all GPUs."""
    if settings.processes > 1 and len(names := sorted(catalog.tasks)) > 1:
        allowed = f"1 if {len(names)} models are served ({', '.join(names)}), as they need the same devices"
        raise InputError("processes", settings.processes, allowed)


def placed(settings: PackingSettings, catalog: Catalog) -> dict[str, list[str]]:
    """Return the devices of each model, by its name. They are dealt out in turn, until all models and devices have one.

    A model with several has an engine on each.
    """
    names, models = devices(settings), len(catalog.tasks)
    return {
        name: names[index::models] if index < len(names) else [names[index % len(names)]]
        for index, name in enumerate(catalog.tasks)
    }


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes generations of engines."""

    settings: PackingSettings
    clock: Clock
    metrics: PackingMetrics
    new_worker: WorkerFactory
    new_predictor: PredictorFactory
    processes: Iterator[int] = field(default_factory=lambda: count(1))

    def make(self, number: int, catalog: Catalog) -> PackingGeneration:
        """Return a generation, not started. Raises `InputError` for models that would share the devices of one."""
        check_sharing(self.settings, catalog)
        used_by = placed(self.settings, catalog)
        handlers = {name: self._handler(served, used_by[name]) for name, served in catalog.tasks.items()}
        forecasters_first = (self.settings.predict_device or devices(self.settings)[0]) != "cpu"
        pool = EnginePool(list(handlers.values()), forecasters_first)
        return Generation(number, catalog, handlers, pool)

    def _handler(self, served: ServedModel, used: Sequence[str]) -> Handler:
        settings, name = self.settings, served.packing.name
        if served.packing.engine != settings.engine:
            text = "%s was planned for the engine %s and runs on %s; plan for that with: pliant profile packing --engine %s"
            logger.warning(text, name, served.packing.engine, *2 * (settings.engine,))
        served = spread(settings, served)
        reader = PromptReader(served.generator.artifact, served.context)
        predictor, plan = served.predictor, DevicePlan(settings.predict_device or used[0], PREDICTOR_THREADS, None, ())
        worker = self.new_predictor(PredictorBuild(predictor.folder, predictor.digest, plan))
        limits = ForecastLimits(settings.predict_limit, settings.launch_limit)
        forecaster = Forecaster(name, worker, predictor.artifact.marginal, limits, self.metrics)
        engine = EngineGroup([(device, self._engine(served, device)) for device in used])
        path = observed_path(settings.home, name)
        observed = ObservedLengths(path, settings.observed_bytes) if settings.observe else None
        return Handler(served, int(time.time()), reader, forecaster, engine, observed)

    def _engine(self, served: ServedModel, device: str) -> EngineDriver:
        """Return an engine with the whole model on one device, not started."""
        sequences = SequenceLimit(served.packing.memory.sequences, partial(self.metrics.limited, served.packing.name))
        worker = self.new_worker(partial(self._build, served, device, sequences))
        limits = EngineLimits(self.settings.launch_limit)
        by = rules(self.settings, served)
        keeps = BY_NAME[str(by.policy)].targets and by.cost is not None
        admission = Admission(by.cost, served.packing.memory) if keeps and by.cost is not None else None
        return EngineDriver(worker, self.clock, limits, self.metrics.died, sequences, admission)

    def _build(self, served: ServedModel, device: str, sequences: SequenceLimit) -> EngineBuild:
        """Return the build plan of the next engine process. Each has a journal of its own, which replays by itself."""
        settings, number = self.settings, next(self.processes)
        required_device = None if settings.any_profile else served.packing.device_class
        kind: type[EngineBuild] = EngineBuild
        of_vllm: dict[str, Any] = {}
        if settings.engine == "vllm":
            kind, interpreter = VllmBuild, interpreter_of(settings.home)
            of_vllm = {"home": settings.home, "processes": settings.processes, "interpreter": interpreter}
        return kind(
            folder=served.generator.folder,
            digest=served.generator.digest,
            memory=replace(served.packing.memory, sequences=sequences.value),
            rules=rules(settings, served),
            plan=DevicePlan(device, settings.threads, required_device, ()),
            journal=numbered_journal(settings.journal, number) if settings.journal else None,
            precision=served.packing.precision,
            token_bytes=served.packing.kv_bytes,
            **of_vllm,
        )


def spread(settings: PackingSettings, served: ServedModel) -> ServedModel:
    """Return the model with the pages that vLLM's processes have memory for.

    A plan counts the pages of one device. Each of N GPUs holds a share of every page, so they hold N times the pages, at
    most those that all sequences fill at their longest. Processes on the CPU share its memory.
    """
    memory = served.packing.memory
    if settings.processes == 1 or devices(settings) == ["cpu"]:
        return served
    max_pages = memory.need(served.generator.artifact.context) * memory.sequences
    pages = max(memory.pages, min(settings.processes * memory.pages, max_pages))
    return replace(served, packing=replace(served.packing, memory=replace(memory, pages=pages)))


def rules(settings: PackingSettings, served: ServedModel) -> Rules:
    """Return the rules of the model's scheduler."""
    return rules_of(served.packing, served.generator.artifact.context, settings.policy, settings.engine)
