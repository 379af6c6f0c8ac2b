"""From the store to the registry: what a flow run made, with its parameters, metrics, figures and the gate's reports.

What is new and what is live: flows/release.py. Knows no Prefect.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from flows import release
from flows.keys import StageResult
from flows.release import TRAINING as TRAINING
from flows.release import Release, commit, flat, promote, register
from flows.settings import Settings
from flows.tokens.config import TokensFlowConfig
from flows.tokens.figures import rate_map, sweeps, trade_off
from flows.tokens.gate import Verdict
from flows.tokens.stages import Bundle
from pliant.progress import Progress
from pliant.report import Report
from pliant.tokens.artifact import Backbone, Profile, Task, Variant
from registry import codec
from registry.mlflow_run import Run
from registry.mlflow_store import MlflowRegistry
from registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE, TOKENS_TASK, TOKENS_VARIANT, experiment
from registry.package import Package
from registry.store import FolderStore


def open_registry(settings: Settings) -> MlflowRegistry:
    return release.open_registry(settings, experiment("tokens"))


def champion(settings: Settings) -> Bundle | None:
    """What is live now; None before the first release."""
    registry = open_registry(settings)
    if not registry.exists() or registry.version(TOKENS_BACKBONE) is None:
        return None
    backbone, _, tasks = champion_models(registry)
    folder, version = registry.fetch(TOKENS_PROFILE)
    return Bundle(backbone, tuple(tasks), codec.load(Profile, folder, version.digest))


def champion_models(registry: MlflowRegistry) -> tuple[Backbone, str, list[Task]]:
    """The live backbone, its digest and its tasks; tasks made for another backbone are left out."""
    folder, published = registry.fetch(TOKENS_BACKBONE)
    backbone = codec.load(Backbone, folder, published.digest)
    tasks = []
    for name in registry.names(TOKENS_TASK):
        if registry.version(name) is not None:
            folder, version = registry.fetch(name)
            tasks.append(codec.load(Task, folder, version.digest))
    return backbone, published.digest, [task for task in tasks if task.backbone == published.digest]


def publish(
    settings: Settings,
    config: TokensFlowConfig,
    made: Mapping[str, StageResult],
    bundle: Bundle,
    verdict: Verdict,
    store: FolderStore,
    progress: Progress,
) -> Release:
    """Log the run, register what is new, and move the aliases if the gate let the challenger pass."""
    registry = open_registry(settings)
    versions: dict[str, int] = {}
    new: list[str] = []
    with registry.run("tokens", {"git_commit": commit()}) as run:
        _log(run, config, bundle, verdict)
        _log_training(run, made)
        for done, (part, one) in enumerate(made.items()):
            name = TOKENS_PREFIX + part
            package = partial(_package, name, part, bundle, versions, store, one)
            versions[name], is_new = register(registry, run, name, one["digest"], package)
            new += [name] if is_new else []
            progress(done + 1, len(made) + 1)
        if verdict.passed:
            promote(registry, versions)
        progress(len(made) + 1, len(made) + 1)
    return Release(verdict.passed, verdict.reason, versions, tuple(new), run.id)


def _log(run: Run, config: TokensFlowConfig, bundle: Bundle, verdict: Verdict) -> None:
    run.params(flat(asdict(config)))
    run.metrics(_metrics(bundle))
    run.figure("trade_off", trade_off(bundle.tasks, bundle.profile))
    run.figure("rate_map", rate_map(bundle.profile))
    run.document("gate", _gate(verdict))
    for task in bundle.tasks:
        run.dataset(task.name, task.data, task.name)


def _log_training(run: Run, made: Mapping[str, StageResult]) -> None:
    """Seconds of training, and what the sweeps of the learning rate found."""
    notes = {part: one["notes"] for part, one in made.items() if "notes" in one}
    run.document("training", notes)
    run.metrics({f"training_seconds.{part}": noted["seconds"] for part, noted in notes.items()})
    found = {part.removeprefix("task-"): noted["sweep"] for part, noted in notes.items() if "sweep" in noted}
    for task, swept in found.items():
        tried = zip(swept["rates"], swept["accuracy"], strict=True)
        run.metrics({f"sweep_accuracy.{task}.rate{rate:g}": accuracy for rate, accuracy in tried})
    if found:
        run.figure("sweeps", sweeps(found))


def _metrics(bundle: Bundle) -> dict[str, float]:
    """Metric names may not hold a plus or minus sign in front, so gamma -5 is `m5` and gamma 8 is `p8`."""
    named = {gamma: f"{'m' if gamma < 0 else 'p'}{abs(gamma)}" for gamma in bundle.profile.latency.settings}
    metrics: dict[str, float] = {}
    for task in bundle.tasks:
        metrics |= {f"test_accuracy.{task.name}.{named[g]}": share for g, share in task.test_accuracy.items()}
        metrics |= {f"profiling_accuracy.{task.name}.{named[g]}": share for g, share in task.accuracy.items()}
    for gamma, name in named.items():
        metrics[f"images_per_second.{name}"] = 32 / bundle.profile.latency.at(gamma, 32)
    return metrics


def _gate(verdict: Verdict) -> dict[str, Any]:
    def plain(reports: Sequence[Report]) -> list[dict[str, Any]]:
        return [asdict(report) for report in reports]

    sides = {"champion": plain(verdict.champion), "challenger": plain(verdict.challenger)}
    return {"passed": verdict.passed, "reason": verdict.reason, "bound": list(verdict.bound), **sides}


def _package(
    name: str, part: str, bundle: Bundle, versions: Mapping[str, int], store: FolderStore, made: StageResult
) -> Package:
    """Inputs and outputs are examples: their types and shapes become the model's signature."""
    backbone = bundle.backbone
    size = backbone.image_size
    images = np.zeros((2, size, size, 3), dtype=np.uint8)
    folder = store.path(made["key"])
    tags: dict[str, object] = {"pliant.git_commit": commit(), "pliant.backbone": bundle.profile.backbone}
    if "notes" in made:
        tags[TRAINING] = json.dumps(made["notes"])
    match part:
        case "backbone":
            width = backbone.weights["pos_embed"].shape[-1]
            params = {"architecture": backbone.architecture, "source": backbone.source, **backbone.options}
            example = np.zeros((2, width), np.float32)
            return Package(name, folder, images, example, config={"device": "cpu"}, params=params, tags=tags)
        case "profile":
            return profile_package(bundle.profile, folder)
    task = next(task for task in bundle.tasks if f"task-{task.name}" == part)
    columns = {label: np.zeros(2, np.float32) for label in task.classes}
    uri = f"models:/{TOKENS_BACKBONE}/{versions[TOKENS_BACKBONE]}"
    return Package(
        name,
        folder,
        images,
        columns,
        options={"gamma": 0},
        config={"backbone": uri, "device": "cpu"},
        params={"classes": len(task.classes), "gammas": sorted(task.accuracy)},
        metrics={f"test_accuracy.gamma{g}".replace("-", "_m"): share for g, share in task.test_accuracy.items()},
        tags={**tags, "pliant.data": task.data},
    )


def profile_package(profile: Profile, folder: Path) -> Package:
    table = {"gamma": np.array([-5, 0]), "batch": np.array([8, 8])}
    tags = {"pliant.git_commit": commit(), "pliant.backbone": profile.backbone, "pliant.device": profile.device}
    seconds = {f"seconds.batch{b}": profile.latency.at(0, b) for b in profile.latency.batches}
    params = {"device": profile.device}
    return Package(TOKENS_PROFILE, folder, table, {"seconds": np.zeros(2)}, params=params, metrics=seconds, tags=tags)


def variant_package(variant: Variant, folder: Path) -> Package:
    size, first = variant.backbone.image_size, min(variant.tasks)
    columns = {label: np.zeros(2, np.float32) for label in variant.tasks[first].classes}
    accuracy = {f"test_accuracy.{name}": task.test_accuracy for name, task in variant.tasks.items()}
    return Package(
        TOKENS_VARIANT + variant.name,
        folder,
        np.zeros((2, size, size, 3), dtype=np.uint8),
        columns,
        options={"task": first},
        config={"device": "cpu"},
        params={"device": variant.device, "tasks": sorted(variant.tasks), **variant.backbone.options},
        metrics={**accuracy, "loading_seconds": variant.loading},
        tags={"pliant.git_commit": commit(), "pliant.device": variant.device},
    )
