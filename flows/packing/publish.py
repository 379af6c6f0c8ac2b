"""From the store to the registry: what a run of the packing flow made, with its parameters, metrics, figures and reports.

Three registered models a name: generator, predictor and plan; the plan's version names those of the others. What is new
and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from flows import release
from flows.keys import StageResult
from flows.packing.config import PackingFlowConfig
from flows.packing.gate import Verdict
from flows.packing.learn import Champion, Learnt
from flows.packing.live import GENERATOR, Record, generator_model, predictor_model
from flows.packing.packages import choice_of, generator_package, plan_package, predictor_package
from flows.packing.report import log_learnt, log_model
from flows.packing.stages import ModelMade, load_generator, load_plan, load_predictor
from flows.release import Release, commit, flat, promote, register
from flows.settings import Settings
from pliant.packing.artifact import Generator
from pliant.progress import Progress
from registry.mlflow_run import Run
from registry.mlflow_store import MlflowRegistry
from registry.names import PACKING_PREFIX, experiment
from registry.store import FolderStore

Registered = tuple[dict[str, int], list[str]]
"""Model -> version, and which of them are new."""


def publish(
    settings: Settings,
    config: PackingFlowConfig,
    made: ModelMade,
    verdict: Verdict,
    store: FolderStore,
    progress: Progress,
) -> Release:
    """Log the run, register what is new, and move the aliases if the gate let it pass."""
    registry = release.open_registry(settings, experiment("packing"))
    with registry.run("packing", {"git_commit": commit()}) as run:
        run.params(flat(asdict(config)))
        run.document("gate", asdict(verdict))
        log_model(run, made, store)
        progress(1, 2)
        versions, new = _register(registry, run, config, made, store)
        if verdict.passed:
            promote(registry, versions)
        progress(2, 2)
    return Release(verdict.passed, verdict.reason, versions, tuple(new), run.id)


def publish_learnt(
    settings: Settings,
    config: PackingFlowConfig,
    champion: Champion,
    made: Learnt,
    verdict: Verdict,
    store: FolderStore,
    progress: Progress,
) -> Release:
    """The same for a predictor that was trained further, and its plan."""
    registry, live = release.open_registry(settings, experiment("packing")), champion.live
    with registry.run("packing retrain", {"git_commit": commit()}) as run:
        run.params(flat(asdict(config.retrain)))
        run.document("gate", asdict(verdict))
        log_learnt(run, made, store)
        progress(1, 2)
        generator = (champion.generator, live.version(GENERATOR))
        origin = live.origin
        versions, new = register_plan(registry, run, live.record, generator, made.predictor, made.plan, store, origin)
        if verdict.passed:
            promote(registry, versions)
        progress(2, 2)
    return Release(verdict.passed, verdict.reason, versions, tuple(new), run.id)


def record(config: PackingFlowConfig) -> Record:
    return Record(config.memory, config.steps, config.plan, config.reference, config.threads)


def _register(
    registry: MlflowRegistry, run: Run, config: PackingFlowConfig, made: ModelMade, store: FolderStore
) -> Registered:
    """The generator, then the predictor with its plan."""
    name, generator = generator_model(made.name), load_generator(store, made.generator)
    package = partial(generator_package, made.name, generator, store.path(made.generator["key"]), made.generator)
    version, is_new = register(registry, run, name, made.generator["digest"], package)
    versions, new = register_plan(registry, run, record(config), (generator, version), made.predictor, made.plan, store)
    return {name: version} | versions, [name, *new] if is_new else new


def register_plan(
    registry: MlflowRegistry,
    run: Run,
    record: Record,
    generator: tuple[Generator, int],
    predictor: StageResult,
    plan: StageResult,
    store: FolderStore,
    origin: str = "",
) -> Registered:
    """`generator`: with the version of its model; `origin`: digest of the plan that this one descends from, if any."""
    packing, learnt = load_plan(store, plan), load_predictor(store, predictor)
    predictor_name, plan_name = predictor_model(packing.name), PACKING_PREFIX + packing.name
    package = partial(predictor_package, packing.name, learnt, store.path(predictor["key"]), predictor)
    number, predictor_new = register(registry, run, predictor_name, predictor["digest"], package)
    versions, choice = (generator[1], number), choice_of(plan["notes"])
    folder, context = store.path(plan["key"]), generator[0].context
    package = partial(plan_package, packing, context, versions, folder, choice, record, learnt.data, origin)
    version, plan_new = register(registry, run, plan_name, plan["digest"], package)
    new = [name for name, is_new in ((predictor_name, predictor_new), (plan_name, plan_new)) if is_new]
    return {predictor_name: number, plan_name: version}, new
