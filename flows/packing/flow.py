"""The packing flow: generator -> lengths -> predictor -> steps -> plan -> gate -> publish. Prefect's part only.

The work is in stages.py. Stages are cached under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. A cached result whose artifact has gone from the store is made again. What a service has
observed since is learnt from by flows/packing/retrain.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows import settings
from flows.device import check_device
from flows.keys import StageResult
from flows.packing import config as packing_config
from flows.packing import lengths as packing_lengths
from flows.packing import live, stages
from flows.packing.config import PackingFlowConfig
from flows.packing.contest import against, contender
from flows.packing.gate import Contender, Verdict, judge
from flows.packing.lengths import Asked
from flows.packing.live import Live
from flows.packing.packages import choice_of, figures
from flows.packing.plan import Choice
from flows.packing.plan import told as plan_told
from flows.packing.publish import publish
from flows.packing.stages import ModelMade
from flows.progress import stage
from flows.release import Release
from flows.tasks import fetched, fresh, kept, passing, show_release
from registry.store import FolderStore
from training.packing.corpus import Corpus


@fetched("generator")
def get_generator(key: str, config: PackingFlowConfig, corpus: Corpus | None, store: FolderStore) -> StageResult:
    with stage(f"{config.name}: generator") as progress:
        return stages.make_generator(config, corpus, key, store, progress)


@kept("lengths")
def observe(
    key: str, config: PackingFlowConfig, generator: StageResult, asked: Asked, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: lengths") as progress:
        return stages.make_lengths(config, generator, asked, key, store, progress)


@kept("predictor")
def train_predictor(
    key: str, config: PackingFlowConfig, generator: StageResult, lengths: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: predictor") as progress:
        return stages.make_predictor(config, generator, lengths, key, store, progress)


@kept("steps")
def profile(key: str, config: PackingFlowConfig, generator: StageResult, store: FolderStore) -> StageResult:
    with stage(f"{config.name}: step profile") as progress:
        return stages.make_steps(config, generator, key, store, progress)


@kept("plan")
def plan(key: str, config: PackingFlowConfig, made: dict[str, StageResult], store: FolderStore) -> StageResult:
    with stage(f"{config.name}: plan") as progress:
        return stages.make_plan(config, made, key, store, progress)


@task(name="gate", cache_policy=NO_CACHE)
def gate(config: PackingFlowConfig, champion: Contender | None, challenger: Contender) -> Verdict:
    with stage(f"{config.name}: gate") as progress:
        return judge(champion, challenger, config.gate, config.reference, progress)


@task(name="publish", cache_policy=NO_CACHE, retries=2, retry_delay_seconds=3, retry_condition_fn=passing)
def release(config: PackingFlowConfig, made: ModelMade, verdict: Verdict, store: FolderStore) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, made, verdict, store, progress)
    show(choice_of(made.plan["notes"]), verdict, released)
    return released


@flow(name="packing", validate_parameters=True)
def packing(config: str | None = None, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Get a generator, observe and predict its lengths, profile, plan, judge and publish the packing system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/packing/config.py).
    Returns what was released: model name -> version, and whether it was promoted.
    """
    told = packing_config.read(Path(config) if config else None, overrides)
    check_device(told)  # what the device cannot do is told before anything is trained
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        corpus = stages.load_corpus(told)
        asked = packing_lengths.asked(told, corpus)
        progress(1, 1)
    made = one_model(told, corpus, asked, store)
    registry = live.open_registry(settings.read())
    kept = descended(live.live(registry).get(told.name), made)
    if kept is not None:
        return kept.plain()
    challenger = contender(store, made)
    champion = against(registry, challenger)
    verdict = gate(told, champion, challenger.contender)
    return release(told, made, verdict, store).plain()


def descended(champion: Live | None, made: ModelMade) -> Release | None:
    """Where the champion was trained or measured further from the very plan that this run made: it stays, unjudged."""
    if champion is None or champion.published.digest == made.plan["digest"] or champion.origin != made.plan["digest"]:
        return None
    name, version = champion.published.name, champion.published.version
    return Release(False, "nothing has changed since the plan that the champion descends from", {name: version}, (), "")


def one_model(told: PackingFlowConfig, corpus: Corpus | None, asked: Asked, store: FolderStore) -> ModelMade:
    """Every stage, each from the cache where what it depends on has not changed."""
    key = stages.generator_key(told, corpus)
    generator: StageResult = fresh(get_generator, store, key)(key, told, corpus, store)
    key = stages.lengths_key(told, generator, asked)
    lengths: StageResult = fresh(observe, store, key)(key, told, generator, asked, store)
    key = stages.predictor_key(told, lengths)
    predictor: StageResult = fresh(train_predictor, store, key)(key, told, generator, lengths, store)
    key = stages.steps_key(told, generator)
    steps: StageResult = fresh(profile, store, key)(key, told, generator, store)
    named = {"generator": generator, "lengths": lengths, "predictor": predictor, "steps": steps}
    key = stages.plan_key(told, named)
    planned: StageResult = fresh(plan, store, key)(key, told, named, store)
    return ModelMade(told.name, generator, lengths, predictor, steps, planned)


def show(choice: Choice, verdict: Verdict, released: Release) -> None:
    """Results in Prefect's UI."""
    rows = [{"policy": one.policy, **figures(one)} for one in choice.policies]
    create_table_artifact(rows, key="packing-policies", description="Policies on the reference workload, simulated")
    show_release("packing", f"The gate: {verdict.reason}\n\nPlan: {plan_told(choice)}", released)
