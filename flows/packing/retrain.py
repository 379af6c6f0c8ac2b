"""The packing system's second flow: what a service observed trains the champion's predictor further, on what it got wrong.

observed -> predictor -> plan -> gate -> publish. The generator and the measured step times stay. The new predictor and the
plan made with it take the champion's place only where the gate lets them; a night with too little to learn from releases
nothing and says so. Prefect's part only: the work is in learn.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows import settings
from flows.keys import StageResult
from flows.packing import config as packing_config
from flows.packing import learn, live
from flows.packing import observed as packing_observed
from flows.packing.config import PackingFlowConfig
from flows.packing.contest import Challenger, against, challenger_of
from flows.packing.flow import gate, show
from flows.packing.gate import Verdict
from flows.packing.learn import Champion, Learnt
from flows.packing.packages import choice_of
from flows.packing.publish import publish_learnt
from flows.packing.reprofile import config_of
from flows.packing.stages import load_observed, load_plan, load_predictor
from flows.progress import stage
from flows.release import Release
from flows.tasks import fresh, kept, passing
from pliant.errors import RegistryError
from registry.store import FolderStore


@kept("retrained predictor")
def train_further(
    key: str, config: PackingFlowConfig, champion: Champion, lengths: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: retrain the predictor") as progress:
        return learn.make_predictor(config, champion, lengths, key, store, progress)


@kept("plan anew")
def plan_anew(
    key: str,
    config: PackingFlowConfig,
    champion: Champion,
    lengths: StageResult,
    predictor: StageResult,
    store: FolderStore,
) -> StageResult:
    with stage(f"{config.name}: plan") as progress:
        return learn.make_plan(config, champion, lengths, predictor, key, store, progress)


@task(name="publish", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=passing)
def release(
    config: PackingFlowConfig, champion: Champion, made: Learnt, verdict: Verdict, store: FolderStore
) -> Release:
    with stage("publish") as progress:
        released = publish_learnt(settings.read(), config, champion, made, verdict, store, progress)
    show(choice_of(made.plan["notes"]), verdict, released)
    create_table_artifact(_judged(made), key="packing-predictor", description="The predictor before and after")
    return released


@flow(name="packing-retrain", validate_parameters=True)
def packing_retrain(
    observed: str | None = None, config: str | None = None, overrides: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train the champions' predictors further on the outputs that a service observed; judge and publish.

    `observed`: a file that it wrote, named after its model unless there is only one (default: every champion's file in
    PLIANT_HOME); `config` and `overrides`: as for the packing flow, of which `lengths.held_out`, `retrain`, `gate` and
    `device` count here. Returns what was released.
    """
    told = packing_config.read(Path(config) if config else None, overrides)
    files = _files(Path(observed) if observed else None)
    return merged([_one(told, champion_of(name), path) for name, path in files.items()]).plain()


def _files(observed: Path | None) -> dict[str, Path]:
    """By the model that each tells of. Raises `RegistryError` where there is none."""
    names = list(live.champion(settings.read()))
    if observed is not None and len(names) > 1:
        names = [name for name in names if name == observed.name.removesuffix(".jsonl").removesuffix(".1")]
    if not names:
        told = f" named as {observed.name}" if observed else ""
        raise RegistryError(f"the registry holds no champion of packing{told}: run `pliant train packing` first")
    home = settings.read().home
    return {name: observed or packing_observed.default_path(home, name) for name in names}


def _one(told: PackingFlowConfig, champion: Champion, path: Path) -> Release:
    """One model's release; without versions where there is too little to learn from."""
    store, name = FolderStore(settings.read().store), champion.live.packing.name
    outputs = packing_observed.read(path, told.retrain.latest)
    seen = learn.observed_of(outputs, champion, told.lengths)
    why = learn.too_little(seen, champion, told.retrain.least)
    if why:
        return Release(False, f"{name}: {why} ({path})", {}, (), "")
    kept = config_of(champion.live, told.device, champion.live.record.threads, told)
    made = _learnt(kept, champion, learn.save_observed(seen, store), outputs, store)
    challenger = _challenger(champion, made, store)
    standing = against(live.open_registry(settings.read()), challenger)
    verdict = gate(kept, standing, challenger.contender)
    released: Release = release(kept, champion, made, verdict, store)
    return released


def merged(releases: list[Release]) -> Release:
    """Of all models; promoted where anything was."""
    return Release(
        any(one.promoted for one in releases),
        "; ".join(one.reason for one in releases),
        {name: version for one in releases for name, version in one.versions.items()},
        tuple(name for one in releases for name in one.new),
        " ".join(one.run for one in releases if one.run),
    )


def champion_of(name: str) -> Champion:
    """With its parts."""
    registry = live.open_registry(settings.read())
    one = live.live(registry)[name]
    return Champion(one, live.generator(registry, one), live.predictor(registry, one))


def _learnt(
    config: PackingFlowConfig,
    champion: Champion,
    lengths: StageResult,
    outputs: tuple[packing_observed.Output, ...],
    store: FolderStore,
) -> Learnt:
    key = learn.predictor_key(config, champion, lengths)
    predictor: StageResult = fresh(train_further, store, key)(key, config, champion, lengths, store)
    key = learn.plan_key(config, champion, lengths, predictor)
    planned: StageResult = fresh(plan_anew, store, key)(key, config, champion, lengths, predictor, store)
    drift = packing_observed.drift(outputs)
    return Learnt(config.name, lengths, predictor, planned, drift)


def _challenger(champion: Champion, made: Learnt, store: FolderStore) -> Challenger:
    held_out = load_observed(store, made.lengths).part(held_out=True)
    predictor = load_predictor(store, made.predictor)
    return challenger_of(load_plan(store, made.plan), predictor, champion.generator.context, held_out)


def _judged(made: Learnt) -> list[dict[str, Any]]:
    notes = made.predictor["notes"]
    return [
        {"measure": name, "before": round(notes["before"][name], 4), "after": round(value, 4)}
        for name, value in notes["judged"].items()
    ]
