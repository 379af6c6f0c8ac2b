"""What a run of the tokens flow publishes: its metrics and figures, and the registered models: backbone, profile, tasks.

Knows no Prefect and no MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pliant.flows.release import TRAINING, Publication, commit
from pliant.flows.stage import Notes, StageResult
from pliant.flows.tokens.figures import rate_map, sweeps, trade_off
from pliant.flows.tokens.gate import Side, Verdict
from pliant.flows.tokens.stages import Bundle, TokensResults
from pliant.registry.mlflow_run import Run
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE
from pliant.registry.package import Package
from pliant.tokens.artifact import Profile
from pliant.training.linear import LinearComparison


def register(published: Publication, results: TokensResults) -> list[str]:
    """Log the run and register what it made; return the names of the models."""
    bundle = results.bundle()
    by_role: dict[str, StageResult[Any]] = {"backbone": results.backbone, "profile": results.profile}
    by_role |= {f"task-{task.name}": result for task, result in zip(bundle.tasks, results.tasks, strict=True)}
    _log(published.run, bundle)
    _log_training(published.run, {role: result.notes for role, result in by_role.items()})
    for role, result in by_role.items():
        package = partial(_package, TOKENS_PREFIX + role, role, bundle, published.versions, result)
        published.register(TOKENS_PREFIX + role, result.digest, package)
    return [TOKENS_PREFIX + role for role in by_role]


def _log(run: Run, bundle: Bundle) -> None:
    run.metrics(_metrics(bundle))
    run.figure("trade_off", trade_off(bundle.tasks, bundle.profile))
    run.figure("rate_map", rate_map(bundle.profile))
    for task in bundle.tasks:
        run.dataset(task.name, task.data, task.name)


def _log_training(run: Run, notes: Mapping[str, Notes]) -> None:
    """Log the seconds of training, and the trials of the sweeps of the learning rate."""
    run.document("training", notes)
    run.metrics({f"training_seconds.{role}": noted["seconds"] for role, noted in notes.items() if "seconds" in noted})
    for role, noted in notes.items():
        if "linear" in noted:
            compared = LinearComparison(**noted["linear"]).metrics()
            run.metrics({f"{name}.{role.removeprefix('task-')}": value for name, value in compared.items()})
    swept = {role.removeprefix("task-"): noted["sweep"] for role, noted in notes.items() if "sweep" in noted}
    for task, sweep in swept.items():
        trials = zip(sweep["rates"], sweep["accuracy"], strict=True)
        run.metrics({f"sweep_accuracy.{task}.rate{rate:g}": accuracy for rate, accuracy in trials})
    if swept:
        run.figure("sweeps", sweeps(swept))


def _metrics(bundle: Bundle) -> dict[str, float]:
    """Return accuracy and speed by gamma. A metric's name may hold no sign in front: gamma -5 is `m5`, gamma 8 `p8`."""
    named = {gamma: f"{'m' if gamma < 0 else 'p'}{abs(gamma)}" for gamma in bundle.profile.latency.settings}
    metrics: dict[str, float] = {}
    for task in bundle.tasks:
        metrics |= {f"test_accuracy.{task.name}.{named[g]}": share for g, share in task.test_accuracy.items()}
        metrics |= {f"profiling_accuracy.{task.name}.{named[g]}": share for g, share in task.accuracy.items()}
    for gamma, name in named.items():
        metrics[f"images_per_second.{name}"] = 32 / bundle.profile.latency.at(gamma, 32)
    return metrics


def gate_report(verdict: Verdict) -> dict[str, Any]:
    """Return the gate's report as plain values."""

    def reports(side: Side | None) -> list[dict[str, Any]]:
        return [asdict(report) for report in side.reports] if side else []

    sides = {"champion": reports(verdict.champion), "challenger": reports(verdict.challenger)}
    return {"passed": verdict.passed, "reason": verdict.reason, "bound": list(verdict.challenger.bound), **sides}


def _package(name: str, role: str, bundle: Bundle, versions: Mapping[str, int], result: StageResult[Any]) -> Package:
    """Return the package of a model in its role: backbone, profile or task-NAME.

    Inputs and outputs are examples: their types and shapes become the model's signature.
    """
    backbone = bundle.backbone
    size = backbone.image_size
    images = np.zeros((2, size, size, 3), dtype=np.uint8)
    folder = result.folder
    tags: dict[str, object] = {"pliant.git_commit": commit(), "pliant.backbone": bundle.profile.backbone}
    tags[TRAINING] = json.dumps(dict(result.notes))
    match role:
        case "backbone":
            width = backbone.weights["pos_embed"].shape[-1]
            params = {"architecture": backbone.architecture, "source": backbone.source, **backbone.options}
            example = np.zeros((2, width), np.float32)
            return Package(name, folder, images, example, config={"device": "cpu"}, params=params, tags=tags)
        case "profile":
            return profile_package(bundle.profile, folder)
    task = next(task for task in bundle.tasks if f"task-{task.name}" == role)
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
    params = {"device": profile.device, "precision": profile.precision or "the device's own"}
    return Package(TOKENS_PROFILE, folder, table, {"seconds": np.zeros(2)}, params=params, metrics=seconds, tags=tags)
