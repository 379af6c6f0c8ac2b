"""The packing system's second flow: trains the champion's predictor further on what a service observed.

observed -> predictor -> plan -> gate -> publish. The generator and the measured step times stay. The new predictor and the
plan made with it take the champion's place only where the gate lets them; with too little to learn from the flow releases
nothing and says so. Prefect's part only: the work is in learn.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect.artifacts import create_table_artifact

from flows import configuration, settings
from flows.keys import StageResult
from flows.packing import config as packing_config
from flows.packing import learn
from flows.packing import observed as packing_observed
from flows.packing.champions import (
    champion_artifacts,
    fetch_generator,
    fetch_predictor,
    load_champions,
)
from flows.packing.config import PackingFlowConfig
from flows.packing.contest import Challenger, challenger_of, champion_against
from flows.packing.flow import gate, show
from flows.packing.gate import Verdict
from flows.packing.learn import LoadedChampion, RetrainResults
from flows.packing.packages import choice_of
from flows.packing.publish import publish_retrained
from flows.packing.reprofile import config_of
from flows.packing.stages import load_observed, load_plan, load_predictor
from flows.progress import stage
from flows.release import Release, merged, open_registry
from flows.tasks import cached_stage, publish_task, system_flow
from flows.watch.triggered import follow_up
from pliant.errors import RegistryError
from registry.names import PACKING_PREFIX
from registry.store import FolderStore


@cached_stage("retrained predictor")
def train_further(
    key: str, config: PackingFlowConfig, loaded: LoadedChampion, lengths: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: retrain the predictor") as progress:
        return learn.make_predictor(config, loaded, lengths, key, store, progress)


@cached_stage("plan anew")
def plan_anew(
    key: str,
    config: PackingFlowConfig,
    loaded: LoadedChampion,
    lengths: StageResult,
    predictor: StageResult,
    store: FolderStore,
) -> StageResult:
    with stage(f"{config.name}: plan") as progress:
        return learn.make_plan(config, loaded, lengths, predictor, key, store, progress)


@publish_task()
def release(
    config: PackingFlowConfig, loaded: LoadedChampion, results: RetrainResults, verdict: Verdict, store: FolderStore
) -> Release:
    with stage("publish") as progress:
        released = publish_retrained(settings.read(), config, loaded, results, verdict, store, progress)
    show(choice_of(results.plan["notes"]), verdict, released)
    create_table_artifact(_judged(results), key="packing-predictor", description="The predictor before and after")
    return released


@system_flow("packing-retrain", "packing")
def packing_retrain(
    observed: str | None = None,
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    nightly: bool = False,
) -> dict[str, Any]:
    """Train the champions' predictors further on the outputs that a service observed; judge and publish.

    `observed`: a file that it wrote, named after its model unless there is only one (default: every champion's file in
    PLIANT_HOME); `config` and `overrides`: as for the packing flow, of which `lengths.held_out`, `retrain`, `gate` and
    `device` count here; `nightly`: without a file, each champion's configuration is that of the live release. With a
    `reason`, the alarm that started it, the packing flow follows where too little was observed to learn from. Returns what
    was released.
    """
    files = _files(Path(observed) if observed else None)
    of_release = nightly and config is None
    configs = {name: _config(name, of_release, Path(config) if config else None, overrides or {}) for name in files}
    released = merged([_retrain(configs[name], load_champion(name), path) for name, path in files.items()])
    if reason and not released.versions:
        follow_up("packing/nightly", reason)
    return released.to_dict()


def _config(name: str, of_release: bool, path: Path | None, overrides: dict[str, Any]) -> PackingFlowConfig:
    if not of_release:
        return packing_config.read(path, overrides)
    given = configuration.of_task(settings.read(), "packing", PACKING_PREFIX + name)
    return packing_config.read(given.source, {**given.laid_over, **overrides})


def _files(observed: Path | None) -> dict[str, Path]:
    """Return the observed files by model. Raises `RegistryError` where there is no champion."""
    names = list(champion_artifacts(settings.read()))
    if observed is not None and len(names) > 1:
        names = [name for name in names if name == observed.name.removesuffix(".jsonl").removesuffix(".1")]
    if not names:
        named = f" named as {observed.name}" if observed else ""
        raise RegistryError(f"the registry holds no champion of packing{named}: run `pliant train packing` first")
    home = settings.read().home_of("packing")
    return {name: observed or packing_observed.default_path(home, name) for name in names}


def _retrain(config: PackingFlowConfig, loaded: LoadedChampion, path: Path) -> Release:
    """Retrain one model and return its release; without versions where there is too little to learn from."""
    store, champion = FolderStore(settings.read().store), loaded.champion
    outputs = packing_observed.read(path, config.retrain.latest)
    observed = learn.observed_of(outputs, loaded, config.lengths)
    why = learn.too_little(observed, loaded, config.retrain.least)
    if why:
        return Release(False, f"{champion.packing.name}: {why} ({path})", {}, (), "")
    config = config_of(champion, config.device, champion.record.threads, config)
    results = _run_stages(config, loaded, learn.save_observed(observed, store), outputs, store)
    challenger = _challenger(loaded, results, store)
    verdict = gate(
        config, champion_against(open_registry(settings.read(), "packing"), challenger), challenger.candidate
    )
    released: Release = release(config, loaded, results, verdict, store)
    return released


def load_champion(name: str) -> LoadedChampion:
    """Return the champion of the model `name` with its generator and predictor."""
    registry = open_registry(settings.read(), "packing")
    champion = load_champions(registry)[name]
    return LoadedChampion(champion, fetch_generator(registry, champion), fetch_predictor(registry, champion))


def _run_stages(
    config: PackingFlowConfig,
    loaded: LoadedChampion,
    lengths: StageResult,
    outputs: tuple[packing_observed.Output, ...],
    store: FolderStore,
) -> RetrainResults:
    key = learn.predictor_key(config, loaded, lengths)
    predictor = train_further(key, config, loaded, lengths, store)
    key = learn.plan_key(config, loaded, lengths, predictor)
    planned = plan_anew(key, config, loaded, lengths, predictor, store)
    drift = packing_observed.drift(outputs)
    return RetrainResults(config.name, lengths, predictor, planned, drift)


def _challenger(loaded: LoadedChampion, results: RetrainResults, store: FolderStore) -> Challenger:
    held_out = load_observed(store, results.lengths).part(held_out=True)
    predictor = load_predictor(store, results.predictor)
    return challenger_of(load_plan(store, results.plan), predictor, loaded.generator.context, held_out)


def _judged(results: RetrainResults) -> list[dict[str, Any]]:
    notes = results.predictor["notes"]
    return [
        {"measure": name, "before": round(notes["before"][name], 4), "after": round(value, 4)}
        for name, value in notes["judged"].items()
    ]
