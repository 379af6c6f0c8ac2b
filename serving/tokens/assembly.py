"""Assembles the tokens service: turns settings and artifacts into a scheduler, a build plan and an endpoint."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pliant.serving.lifecycle.catalog import Artifacts, Registry
from pliant.serving.lifecycle.system import Blueprint, Dependencies, ServedSystem
from pliant.serving.tokens.catalog import Catalog, TaskInfo, TokensBuild, load_catalog
from pliant.serving.tokens.endpoint import NAMES, TokensEndpoint
from pliant.serving.tokens.metric_list import ORIGINS
from pliant.serving.tokens.registration import Origins, Registrar, TokensGeneration, TokensSource
from pliant.serving.tokens.settings import TokensSettings
from pliant.serving.workers.device_process import Build
from pliant.serving.workers.devices import DevicePlan, devices
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge, Options, TokensScheduler

LEAD = 0.005  # seconds before a device's expected end at which its next batch is sent: packing 64 images takes as long
WARM_BATCH = 16  # every setting runs once with this batch size and once with 1 before the first request


class TokensSystem(ServedSystem[TokensSettings, Catalog, TaskInfo, TokensEndpoint]):
    profiled, setting, origins, labels = "models", "gamma", ORIGINS, NAMES

    def __init__(self, settings: TokensSettings) -> None:
        super().__init__(settings)
        self._origins: Origins = {}
        self._registrar: Registrar

    def source(self, registry: Registry | None = None) -> TokensSource:
        given, settings = super().source(registry), self.settings
        source = TokensSource(given.registry, given.alias, given.prefix, self.load)
        known = partial(make_knowledge, settings)
        self._registrar = Registrar(partial(rebuilt, settings), known, source, self._origins)
        return source

    def load(self, registry: Artifacts, alias: str, running: Catalog | None) -> Catalog:
        """Return the catalog. Raises as `load_catalog`, and `InputError` for a gamma that was not profiled."""
        catalog = load_catalog(registry, alias, running)
        self.settings.used(catalog.knowledge().latency.settings)
        return catalog

    def blueprint(self, catalog: Catalog) -> Blueprint[TaskInfo]:
        """Return what a generation of this catalog needs, and remember the catalog's origins."""
        knowledge = make_knowledge(self.settings, catalog)
        self._origins.update(catalog.origins)
        return Blueprint(
            make_scheduler=partial(make_scheduler, self.settings, knowledge),
            handlers=catalog.tasks_described(),
            builds=[build_plan(self.settings, catalog, device) for device in devices(self.settings)],
            ahead=True,
            facts=knowledge.plain(),
            limited=True,
        )

    async def extend(self, present: TokensGeneration, target: Catalog) -> TokensGeneration | None:
        return await self._registrar.extend(present, target)

    def endpoint(self, parts: Dependencies[Catalog, TaskInfo]) -> TokensEndpoint:
        self._registrar.pins.count_in(parts.counted)
        settings, registrar = self.settings, self._registrar
        return TokensEndpoint(
            settings, parts.refresher, registrar, self._origins, parts.metrics, parts.clock, parts.outcomes
        )


SERVED = TokensSystem


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
    gammas, profile = tuple(settings.used(latency.settings)), catalog.profile
    points = {number: point for number, point in profile.points.items() if number in gammas}
    return TokensBuild(
        *(catalog.backbone.folder, catalog.backbone.digest, tuple(catalog.tasks.values()), gammas, plan),
        *(profile.precision, points),
    )
