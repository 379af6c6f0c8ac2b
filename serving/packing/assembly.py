"""Puts the packing service together: registry, generations with their engines and forecasters, refresher, endpoint.

The one place that turns settings and artifacts into an engine's build plan. A new champion is started beside the present
one and takes what is asked from then on, while the former one's outputs come to their ends; so both must fit into the
device's memory for that while. Where they do not, the refresh fails with that sentence, and the present one goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from itertools import count

from prometheus_client import REGISTRY, CollectorRegistry

from pliant.errors import InputError
from pliant.packing.scheduling.plan import rules_of
from pliant.packing.scheduling.policy import Rules
from registry.names import PACKING_PREFIX
from serving.clock import Clock
from serving.lifecycle.artifacts import Registry, open_registry
from serving.lifecycle.assembly import Assembly
from serving.lifecycle.generation import Generation, numbered
from serving.lifecycle.refresh import Source, follow
from serving.packing.catalog import Catalog, ServedModel, load_catalog
from serving.packing.endpoint import Dependencies, PackingEndpoint, Served, Way
from serving.packing.engine.engine import EngineDriver, Limits
from serving.packing.engine.engine_pool import EnginePool
from serving.packing.engine.forecaster import Forecaster, Predict
from serving.packing.engine.metrics import PackingMetrics
from serving.packing.engine.observed import ObservedLengths, observed_path
from serving.packing.engine.spread import check as check_spread
from serving.packing.engine.spread import check_here, spread
from serving.packing.engine.worker import ProcessWorker, Worker
from serving.packing.messages import Build, EngineBuild
from serving.packing.reading import PromptReader
from serving.packing.settings import PackingSettings
from serving.workers.device_plan import DevicePlan
from serving.workers.devices import SameDevice, check_devices, devices

WorkerFactory = Callable[[Callable[[], Build]], Worker]
"""A worker, not yet started, that asks for its build plan at each start."""
LoadPredictor = Callable[[ServedModel], Predict]


def check(settings: PackingSettings) -> None:
    """What launch.py's `check` says, for this system."""
    catalog = load_catalog(open_registry(settings), settings.alias)
    for served in catalog.models.values():
        rules(settings, served)
        PromptReader(served.generator, served.context)
    check_here(settings, catalog)
    check_devices(settings, catalog)


def load_predictor(served: ServedModel) -> Predict:
    """Called in the thread that it will run in."""
    from serving.packing.engine.predictor_device import load

    return load(served.predictor.folder, served.predictor.digest)


async def assemble(
    settings: PackingSettings,
    registry: Registry | None = None,
    worker_factory: WorkerFactory = ProcessWorker,
    load: LoadPredictor = load_predictor,
    counted: CollectorRegistry = REGISTRY,
) -> Assembly[PackingEndpoint, Catalog, Way, EnginePool]:
    """A service whose engines run. Raises `PliantError`."""
    registry, metrics = registry or open_registry(settings), PackingMetrics(counted)
    clock: Clock = time.monotonic  # the engines' processes read the same one: deadlines are on it
    source = Source(registry, settings.alias, PACKING_PREFIX, load_catalog)
    builder = Builder(settings, clock, metrics, worker_factory, load)
    refresher = await follow(source, builder.start, settings.refresh_seconds, metrics)
    endpoint = PackingEndpoint(Dependencies(settings, refresher, metrics, clock))
    return Assembly(endpoint, refresher, asyncio.create_task(refresher.poller.run()))


class Builder:
    """Makes one generation after the other."""

    def __init__(
        self,
        settings: PackingSettings,
        clock: Clock,
        metrics: PackingMetrics,
        worker_factory: WorkerFactory,
        load: LoadPredictor,
    ) -> None:
        self._settings, self._clock, self._metrics = settings, clock, metrics
        self._worker_factory, self._load = worker_factory, load
        self._made, self._processes = count(1), count(1)
        self._same = SameDevice("models", settings.any_profile)

    async def start(self, catalog: Catalog) -> Served:
        """Raises `DeviceError` for another class of device than the first one's, `InputError` for models that cannot share
        the devices, and as `Generation.start`."""
        self._same.check(catalog)
        check_spread(self._settings, catalog)
        every = devices(self._settings)
        ways = {
            name: self._way(served, every[place % len(every)])
            for place, (name, served) in enumerate(catalog.models.items())
        }
        used = list(ways.values())
        observed = [way.observed for way in used if way.observed is not None]
        fleet = EnginePool([way.engine for way in used], [way.forecaster for way in used], observed)
        made = Generation(next(self._made), catalog, ways, fleet)
        await made.start()
        return made

    def _way(self, served: ServedModel, device: str) -> Way:
        settings, name = self._settings, served.packing.name
        served = spread(settings, served)
        reader = PromptReader(served.generator, served.context)
        forecaster = Forecaster(partial(self._load, served), served.predictor.marginal, settings.predict_limit)
        worker = self._worker_factory(partial(self._build, served, device))
        engine = EngineDriver(worker, self._clock, Limits(settings.launch_limit), self._metrics.died)
        path = observed_path(settings.home, name)
        observed = ObservedLengths(path, settings.observed_bytes) if settings.observe else None
        return Way(served, int(time.time()), reader, forecaster, engine, observed)

    def _build(self, served: ServedModel, device: str) -> EngineBuild:
        """Each process has a journal of its own, which replays by itself."""
        settings, number = self._settings, next(self._processes)
        insisted = None if settings.any_profile else served.packing.device_class
        return EngineBuild(
            folder=served.generator.folder,
            digest=served.generator.digest,
            memory=served.packing.memory,
            rules=rules(settings, served),
            plan=DevicePlan(device, settings.threads, insisted, ()),
            journal=numbered(settings.journal, number) if settings.journal else None,
            processes=settings.processes,
        )


def rules(settings: PackingSettings, served: ServedModel) -> Rules:
    """What the model's scheduler goes by. Raises `InputError` for a policy that cannot be served with."""
    if settings.policy == "oracle":
        raise InputError("policy", "oracle", "one that does without the outputs' exact lengths: it is for simulations")
    return rules_of(served.packing, served.generator.context, settings.policy)
