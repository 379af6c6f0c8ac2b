"""Assembles the cascade service: turns settings and artifacts into a scheduler, build plans and an endpoint."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from pliant.cascade.artifact import EXIT
from pliant.cascade.knowledge import Knowledge, knowledge, numbers, prunes
from pliant.cascade.scheduler import CascadeScheduler, Options
from pliant.serving.cascade.audit import AgreementCounter, Audit
from pliant.serving.cascade.catalog import Catalog, load_catalog
from pliant.serving.cascade.endpoint import CascadeEndpoint, Handler, handler_of, read
from pliant.serving.cascade.messages import CascadeBuild, ModelBuild
from pliant.serving.cascade.metric_list import ORIGINS
from pliant.serving.cascade.settings import CascadeSettings
from pliant.serving.lifecycle.catalog import Artifacts
from pliant.serving.lifecycle.system import Blueprint, Dependencies, ServedSystem
from pliant.serving.loop.outcomes import LEVELS
from pliant.serving.workers.devices import DevicePlan, device_of

WARM_BATCHES = (1, 16)  # every classifier runs these batch sizes before the first request


class CascadeSystem(ServedSystem[CascadeSettings, Catalog, Handler, CascadeEndpoint]):
    setting, origins, labels = "model", ORIGINS, LEVELS

    def load(self, registry: Artifacts, alias: str, running: Catalog | None) -> Catalog:
        return load_catalog(registry, alias, running)

    def blueprint(self, catalog: Catalog) -> Blueprint[Handler]:
        settings = self.settings
        return Blueprint(
            make_scheduler=lambda: make_scheduler(settings, make_knowledge(settings, catalog)),
            handlers={name: handler_of(served) for name, served in catalog.tasks.items()},
            builds=[build_plan(settings, catalog, worker) for worker in range(settings.workers)],
            setting_name=model_names(catalog).__getitem__,
            read=read,
        )

    def endpoint(self, parts: Dependencies[Catalog, Handler]) -> CascadeEndpoint:
        endpoint = CascadeEndpoint(self.settings, parts.refresher, parts.metrics, parts.outcomes, parts.clock)
        endpoint.audit = Audit(
            self.settings.agreement_share,
            parts.refresher.generations,
            endpoint.drift,
            AgreementCounter(parts.counted),
        )
        return endpoint

    def background(self, endpoint: CascadeEndpoint) -> Sequence[Coroutine[Any, Any, None]]:
        return (endpoint.audit.run(),)


SERVED = CascadeSystem


def make_knowledge(settings: CascadeSettings, catalog: Catalog) -> Knowledge:
    return knowledge(catalog.cascades, settings.workers, settings.placement == "own")


def make_scheduler(settings: CascadeSettings, known: Knowledge) -> CascadeScheduler:
    options = Options(margin=settings.margin, max_waiting=settings.max_waiting)
    return CascadeScheduler(known, settings.workers, options)


def build_plan(settings: CascadeSettings, catalog: Catalog, worker: int) -> CascadeBuild:
    """Return the build plan of one worker's device process, with the classifiers that it may run."""
    models, known = [], make_knowledge(settings, catalog).models
    for (task, number, layers), model in numbers(catalog.cascades).items():
        served = catalog.tasks[task]
        if worker in known[model].workers:
            profile, level = served.cascade.levels[number], served.levels[number]
            trunk = next(each for each in served.levels if each.digest == (profile.trunk or profile.classifier))
            pruning = number in prunes(served.cascade) and not layers
            exit = (level.folder, level.digest) if profile.kind == EXIT else (None, "")
            models.append(
                ModelBuild(model, trunk.folder, trunk.digest, pruning, served.cascade.precision, layers, *exit)
            )
    required_device = None if settings.any_profile else catalog.device
    plan = DevicePlan(device_of(settings, worker), settings.threads, required_device, WARM_BATCHES)
    return CascadeBuild(tuple(models), plan)


def model_names(catalog: Catalog) -> list[str]:
    """Return the label of each model in metrics, by its number; what remains of a level behind an exit has its own."""
    levels = {(cascade.task, at): level.name for cascade in catalog.cascades for at, level in enumerate(cascade.levels)}
    return [
        f"{task}/{levels[task, level]}" + (f" from layer {layers + 1}" if layers else "")
        for task, level, layers in numbers(catalog.cascades)
    ]
