"""The tokens flow: foundation -> tasks -> profile -> gate -> publish. Prefect's part only; the work is in stages.py.

Results of training and profiling are kept under keys of what they depend on, so a second run with nothing changed trains
nothing. What has gone from the store is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prefect.artifacts import create_table_artifact

from flows import configuration, settings
from flows.configuration import Configuration
from flows.device import check_device
from flows.gate import below_linear
from flows.keys import StageResult
from flows.progress import stage
from flows.release import Release, merged
from flows.repeats import noted
from flows.tasks import (
    cached_stage,
    clean,
    download_stage,
    gate_task,
    publish_task,
    show_release,
    system_flow,
)
from flows.tokens import config as tokens_config
from flows.tokens import remeasure, stages
from flows.tokens.champions import load_champion, task_digest
from flows.tokens.config import TokensFlowConfig
from flows.tokens.feedback import with_lessons
from flows.tokens.gate import Verdict, judge
from flows.tokens.publish import publish
from flows.tokens.stages import Bundle
from pliant.progress import share
from pliant.tokens.artifact import Task
from registry.names import TOKENS_TASK
from registry.store import FolderStore
from training.data import ImageData
from training.linear import LinearComparison
from training.tokens import labelled


@download_stage("foundation")
def foundation(key: str, config: TokensFlowConfig, data: ImageData, store: FolderStore) -> StageResult:
    with stage("foundation") as progress:
        return stages.make_foundation(config, data, key, store, progress)


@cached_stage("task", task_run_name="task-{name}")
def train_task(
    key: str, name: str, config: TokensFlowConfig, data: ImageData, backbone: StageResult, store: FolderStore
) -> StageResult:
    with stage(f"task {name}") as progress:
        halves = (share(progress, 0, 80), share(progress, 80, 100))  # training and measuring, of about these lengths
        return stages.make_task(config, data, backbone, key, store, halves)


@cached_stage("profile")
def profile(
    key: str, config: TokensFlowConfig, backbone: StageResult, tasks: list[StageResult], store: FolderStore
) -> StageResult:
    with stage("latency profile") as progress:
        return stages.make_profile(config, backbone, tasks, key, store, progress)


@cached_stage("champion", task_run_name="champion-{name}")
def measure_champion(
    key: str, name: str, config: TokensFlowConfig, champion: Bundle, task: Task, data: ImageData, store: FolderStore
) -> StageResult:
    with stage(f"champion's {name}") as progress:
        return remeasure.measure(config, champion, task, data, key, store, progress)


@gate_task()
def gate(config: TokensFlowConfig, champion: Bundle | None, challenger: Bundle, below_linear: str) -> Verdict:
    with stage("gate") as progress:
        verdict = judge(champion, challenger, config.gate, config.reference, config.other_device, below_linear)
        progress(1, 1)
    return verdict


@publish_task()
def release(
    config: TokensFlowConfig,
    results: dict[str, StageResult],
    bundle: Bundle,
    verdict: Verdict,
    store: FolderStore,
    kept: dict[str, str],
) -> Release:
    with stage("publish") as progress:
        released = publish(settings.read(), config, results, bundle, verdict, store, progress, kept)
    _show(bundle, verdict, released)
    return released


def trained(
    config: TokensFlowConfig, loaded: Sequence[ImageData], upstream: ImageData, store: FolderStore
) -> tuple[StageResult, list[StageResult], StageResult]:
    """Return backbone, tasks and profile, each from the cache where what it depends on has not changed."""
    key = stages.foundation_key(config, upstream)
    backbone = foundation(key, config, upstream, store)
    tasks = []
    for data in loaded:
        key = stages.task_key(config, data, backbone)
        tasks.append(train_task(key, data.name, config, data, backbone, store))
    key = stages.profile_key(config, backbone, tasks)
    profiled = profile(key, config, backbone, tasks, store)
    return backbone, tasks, profiled


def comparable(
    config: TokensFlowConfig, champion: Bundle | None, loaded: Sequence[ImageData], store: FolderStore
) -> Bundle | None:
    """Return the champion with accuracies of the rows that the challenger was tested on (flows/tokens/remeasure.py)."""
    measured = {}
    for task, data in remeasure.to_measure(champion, loaded):
        assert champion is not None
        key = remeasure.measured_key(config, champion, task, task_digest(settings.read(), task.name), data)
        measured[task.name] = measure_champion(key, task.name, config, champion, task, data, store)
    return remeasure.with_accuracies(champion, measured, store) if champion is not None else None


@system_flow("tokens", "tokens")
def tokens(
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    reason: str | None = None,
    new_task: bool = False,
    nightly: bool = False,
) -> dict[str, Any]:
    """Train, profile, judge and publish the tokens system.

    `config`: path of a TOML file; `overrides`: values laid over its top level (see flows/tokens/config.py);
    `reason`: the alarm that started it (see flows/watch); `new_task`: whether it may release a task that the live release
    lacks; `nightly`: without a file, the configuration is that of the live release (flows/configuration.py).
    Returns what was released: model name -> version, and whether it was promoted.
    """
    del reason  # flows/watch/triggered.py acts on it
    given = configuration.to_train(settings.read(), "tokens", config, overrides, nightly)
    released = merged([_train(each, new_task) for each in given])
    clean("tokens")
    return released.to_dict()


def _train(given: Configuration, new_task: bool) -> Release:
    """Train, judge and publish what one configuration says."""
    flow_config = tokens_config.read(given.source, given.laid_over)
    check_device(flow_config)  # before anything is trained
    store = FolderStore(settings.read().store)
    original = stages.load_data(flow_config)
    kept = configuration.to_keep(
        settings.read(), "tokens", given, [TOKENS_TASK + data.name for data in original], new_task
    )
    upstream = stages.load_upstream(flow_config, original)
    loaded = [with_lessons(flow_config.feedback, data, flow_config.task.held_out) for data in original]
    backbone, tasks, profiled = trained(flow_config, loaded, upstream, store)
    bundle = stages.load_bundle(store, backbone, tasks, profiled)
    compared = [
        (f"the task {data.name}", entry.rpartition("=")[2], LinearComparison(**task["notes"]["linear"]))
        for entry, data, task in zip(flow_config.data, loaded, tasks, strict=True)
    ]
    below = below_linear(compared, flow_config.gate.below_linear)
    champion = comparable(flow_config, load_champion(settings.read()), loaded, store)
    verdict = gate(flow_config, champion, bundle, below)
    results = {"backbone": backbone, "profile": profiled} | {
        f"task-{old.name}": _noted(task, old, data) for old, data, task in zip(original, loaded, tasks, strict=True)
    }
    released: Release = release(flow_config, results, bundle, verdict, store, kept)
    return released


def _noted(task: StageResult, original: ImageData, loaded: ImageData) -> StageResult:
    """Return a task's result with what repeats in its data and the numbers of labelled pictures among its notes."""
    task = noted(task, original.repeats)
    if loaded is original:
        return task
    return {**task, "notes": {**task.get("notes", {}), "labels": labelled.counts(original, loaded)}}


def _show(bundle: Bundle, verdict: Verdict, released: Release) -> None:
    """Show the results in Prefect's UI."""
    gammas = bundle.profile.latency.settings
    rows = [{"gamma": g, **{t.name: round(t.test_accuracy[g], 3) for t in bundle.tasks}} for g in gammas]
    for row in rows:
        row["images/s at batch 32"] = round(32 / bundle.profile.latency.at(int(row["gamma"]), 32))
    create_table_artifact(rows, key="tokens-trade-off", description="Test accuracy and throughput per gamma")
    show_release("tokens", f"The gate: {verdict.reason}.", released)
