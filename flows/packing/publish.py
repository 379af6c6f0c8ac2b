"""From the store to the registry: the results of a packing flow run, with its parameters, metrics, figures and reports.

Three registered models a name: generator, predictor and plan; the plan's version names those of the others. What is new
and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from flows.keys import StageResult
from flows.packing.champions import GENERATOR, Record
from flows.packing.config import PackingFlowConfig
from flows.packing.gate import Verdict
from flows.packing.learn import LoadedChampion, RetrainResults
from flows.packing.packages import choice_of, generator_package, plan_package, predictor_package
from flows.packing.report import log_model, log_retrained
from flows.packing.stages import ModelResults, load_generator, load_plan, load_predictor
from flows.release import Publication, Release, open_registry, publication
from flows.settings import Settings
from pliant.packing.artifact import Generator
from pliant.progress import Progress
from registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from registry.store import FolderStore


def publish(
    settings: Settings,
    config: PackingFlowConfig,
    results: ModelResults,
    verdict: Verdict,
    store: FolderStore,
    progress: Progress,
    kept: Mapping[str, str],
) -> Release:
    """Log the run, register what is new, and release it if the gate let it pass."""
    with publication(open_registry(settings, "packing"), "packing", asdict(config), asdict(verdict), kept) as published:
        log_model(published.run, results, store)
        progress(1, 2)
        generator, result = load_generator(store, results.generator), results.generator
        package = partial(generator_package, results.name, generator, store.path(result["key"]), result)
        version = published.register(PACKING_GENERATOR + results.name, result["digest"], package)
        _register_plan(published, record(config), (generator, version), results.predictor, results.plan, store)
        if verdict.passed:
            published.promote(published.versions)
        progress(2, 2)
    return published.release(verdict.passed, verdict.reason)


def publish_retrained(
    settings: Settings,
    config: PackingFlowConfig,
    loaded: LoadedChampion,
    results: RetrainResults,
    verdict: Verdict,
    store: FolderStore,
    progress: Progress,
) -> Release:
    """Log, register and promote a predictor that was trained further, and its plan, as `publish` does."""
    registry, champion = open_registry(settings, "packing"), loaded.champion
    with publication(registry, "packing retrain", asdict(config.retrain), asdict(verdict)) as published:
        log_retrained(published.run, results, store)
        progress(1, 2)
        generator, origin = (loaded.generator, champion.version(GENERATOR)), champion.origin
        _register_plan(published, champion.record, generator, results.predictor, results.plan, store, origin)
        if verdict.passed:
            published.promote(published.versions)
        progress(2, 2)
    return published.release(verdict.passed, verdict.reason)


def record(config: PackingFlowConfig) -> Record:
    return Record(config.memory, config.steps, config.plan, config.reference, config.threads)


def _register_plan(
    published: Publication,
    record: Record,
    generator: tuple[Generator, int],
    predictor: StageResult,
    plan: StageResult,
    store: FolderStore,
    origin: str = "",
) -> None:
    """Register a predictor and then the plan made with it.

    `generator`: with the version of its model; `origin`: digest of the plan that this one descends from, if any.
    """
    packing, trained = load_plan(store, plan), load_predictor(store, predictor)
    package = partial(predictor_package, packing.name, trained, store.path(predictor["key"]), predictor)
    number = published.register(PACKING_PREDICTOR + packing.name, predictor["digest"], package)
    versions, choice = (generator[1], number), choice_of(plan["notes"])
    folder, context = store.path(plan["key"]), generator[0].context
    package = partial(plan_package, packing, context, versions, folder, choice, record, trained.data, origin)
    published.register(PACKING_PREFIX + packing.name, plan["digest"], package)
