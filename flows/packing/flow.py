"""The packing flow: generator -> lengths -> predictor -> steps -> plan -> gate -> publish. Prefect's part only.

The work is in stages.py. Results are kept under keys of what they depend on, so a second run with nothing changed
trains and measures nothing. What has gone from the store is made again. What a service has
observed since is learnt from by flows/packing/retrain.py.
"""

from __future__ import annotations

import sys
from typing import Any

from prefect.artifacts import create_table_artifact

from flows import configuration, settings
from flows.configuration import Configuration
from flows.device import check_device
from flows.keys import StageResult
from flows.packing import config as packing_config
from flows.packing import stages
from flows.packing.champions import Champion, load_champions
from flows.packing.config import PackingFlowConfig
from flows.packing.contest import challenger_from, champion_against
from flows.packing.gate import Candidate, Verdict, judge
from flows.packing.lengths import PromptSet, select_prompts
from flows.packing.packages import choice_of, describe_predictor, figures
from flows.packing.plan import Choice, describe
from flows.packing.publish import publish
from flows.packing.stages import ModelResults
from flows.progress import stage
from flows.release import Release, merged, open_registry
from flows.repeats import noted, tell
from flows.tasks import (
    cached_stage,
    clean,
    download_stage,
    gate_task,
    publish_task,
    show_release,
    system_flow,
)
from registry.names import PACKING_PREFIX
from registry.store import FolderStore
from training.packing.corpus import Corpus


@download_stage("generator")
def get_generator(key: str, config: PackingFlowConfig, corpus: Corpus | None, store: FolderStore) -> StageResult:
    with stage(f"{config.name}: generator") as progress:
        return stages.make_generator(config, corpus, key, store, progress)


@cached_stage("lengths")
def observe(
    key: str, config: PackingFlowConfig, generator: StageResult, prompts: PromptSet, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: lengths") as progress:
        return stages.make_lengths(config, generator, prompts, key, store, progress)


@cached_stage("predictor")
def train_predictor(
    key: str, config: PackingFlowConfig, generator: StageResult, lengths: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"{config.name}: predictor") as progress:
        return stages.make_predictor(config, generator, lengths, key, store, progress)


@cached_stage("steps")
def profile(key: str, config: PackingFlowConfig, generator: StageResult, store: FolderStore) -> StageResult:
    with stage(f"{config.name}: step profile") as progress:
        return stages.make_steps(config, generator, key, store, progress)


@cached_stage("plan")
def plan(key: str, config: PackingFlowConfig, results: dict[str, StageResult], store: FolderStore) -> StageResult:
    with stage(f"{config.name}: plan") as progress:
        return stages.make_plan(config, results, key, store, progress)


@gate_task()
def gate(config: PackingFlowConfig, champion: Candidate | None, challenger: Candidate) -> Verdict:
    with stage(f"{config.name}: gate") as progress:
        return judge(champion, challenger, config.gate, config.reference, progress, config.other_device)


@publish_task()
def release(
    config: PackingFlowConfig, results: ModelResults, verdict: Verdict, store: FolderStore, kept: dict[str, str]
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, results, verdict, store, progress, kept)
    show(choice_of(results.plan["notes"]), verdict, released)
    return released


@system_flow("packing", "packing")
def packing(
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    new_task: bool = False,
    nightly: bool = False,
) -> dict[str, Any]:
    """Get a generator, observe and predict its lengths, profile, plan, judge and publish the packing system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/packing/config.py);
    `reason`: the alarm that started it (see flows/watch); `new_task`: whether it may release a task that the live release
    lacks; `nightly`: without a file, the configuration is that of the live release (flows/configuration.py).
    Returns what was released: model name -> version, and whether it was promoted.
    """
    del reason  # flows/watch/triggered.py acts on it
    given = configuration.to_train(settings.read(), "packing", config, overrides, nightly)
    released = merged([_train(each, new_task) for each in given])
    clean("packing")
    return released.to_dict()


def _train(given: Configuration, new_task: bool) -> Release:
    """Train, judge and publish what one configuration says."""
    flow_config = packing_config.read(given.source, given.laid_over)
    check_device(flow_config)  # before anything is trained
    kept = configuration.to_keep(settings.read(), "packing", given, [PACKING_PREFIX + flow_config.name], new_task)
    store = FolderStore(settings.read().store)
    with stage("texts") as progress:
        corpus = stages.load_corpus(flow_config)
        prompts = select_prompts(flow_config, corpus)
        progress(1, 1)
    tell("prompts", prompts.repeats)
    results = run_model(flow_config, corpus, prompts, store)
    registry = open_registry(settings.read(), "packing")
    unchanged = descended(load_champions(registry).get(flow_config.name), results)
    if unchanged is not None:
        registry.commit(unchanged.versions, kept=kept)  # the configuration may be another one nevertheless
        return unchanged
    challenger = challenger_from(store, results)
    champion = champion_against(registry, challenger)
    predicted = describe_predictor(stages.load_predictor(store, results.predictor))
    print(f"{flow_config.name}: {predicted}.", file=sys.stderr)  # noqa: T201
    verdict = gate(flow_config, champion, challenger.candidate)
    released: Release = release(flow_config, results, verdict, store, kept)
    return released


def descended(champion: Champion | None, results: ModelResults) -> Release | None:
    """Return a release that keeps the champion, unjudged, where it was trained or measured further from this very plan."""
    digest = results.plan["digest"]
    if champion is None or champion.published.digest == digest or champion.origin != digest:
        return None
    name, version = champion.published.name, champion.published.version
    return Release(False, "nothing has changed since the plan that the champion descends from", {name: version}, (), "")


def run_model(config: PackingFlowConfig, corpus: Corpus | None, prompts: PromptSet, store: FolderStore) -> ModelResults:
    """Run every stage, each from the cache where what it depends on has not changed."""
    key = stages.generator_key(config, corpus)
    generator = get_generator(key, config, corpus, store)
    key = stages.lengths_key(config, generator, prompts)
    lengths = observe(key, config, generator, prompts, store)
    key = stages.predictor_key(config, lengths)
    predictor = train_predictor(key, config, generator, lengths, store)
    key = stages.steps_key(config, generator)
    steps = profile(key, config, generator, store)
    named = {"generator": generator, "lengths": lengths, "predictor": predictor, "steps": steps}
    key = stages.plan_key(config, named)
    planned = plan(key, config, named, store)
    return ModelResults(config.name, generator, noted(lengths, prompts.repeats), predictor, steps, planned)


def show(choice: Choice, verdict: Verdict, released: Release) -> None:
    """Show the results in Prefect's UI."""
    rows = [{"policy": policy.policy, **figures(policy)} for policy in choice.policies]
    create_table_artifact(rows, key="packing-policies", description="Policies on the reference workload, simulated")
    show_release("packing", f"The gate: {verdict.reason}\n\nPlan: {describe(choice)}", released)
