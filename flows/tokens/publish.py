"""What a run of the tokens flow publishes: its metrics and figures, and the registered models: backbone, profile, tasks.

Knows no Prefect and no MLflow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pliant.flows.release import TRAINING, Publication, commit
from pliant.flows.stage import StageResult
from pliant.flows.tokens.stages import Bundle, TokensResults
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE
from pliant.registry.package import Package
from pliant.tokens.artifact import Profile, Task
from pliant.training.linear import LinearComparison

matplotlib.use("Agg")


def register(published: Publication, results: TokensResults) -> list[str]:
    """Log the run and register what it made; return the names of the models."""
    bundle = results.bundle()
    by_role: dict[str, StageResult[Any]] = {"backbone": results.backbone, "profile": results.profile}
    by_role |= {f"task-{task.name}": result for task, result in zip(bundle.tasks, results.tasks, strict=True)}
    run, notes = published.run, {role: result.notes for role, result in by_role.items()}
    run.metrics(_metrics(bundle))
    run.figure("trade_off", trade_off(bundle.tasks, bundle.profile))
    run.figure("rate_map", rate_map(bundle.profile))
    for task in bundle.tasks:
        run.dataset(task.name, task.data, task.name)
    run.document("training", notes)
    run.metrics({f"training_seconds.{role}": noted["seconds"] for role, noted in notes.items() if "seconds" in noted})
    for role, noted in notes.items():
        if "linear" in noted:
            compared = LinearComparison(**noted["linear"]).metrics()
            run.metrics({f"{name}.{role.removeprefix('task-')}": value for name, value in compared.items()})
    swept = {role.removeprefix("task-"): noted["sweep"] for role, noted in notes.items() if "sweep" in noted}
    for name, sweep in swept.items():
        trials = zip(sweep["rates"], sweep["accuracy"], strict=True)
        run.metrics({f"sweep_accuracy.{name}.rate{rate:g}": accuracy for rate, accuracy in trials})
    if swept:
        run.figure("sweeps", sweeps(swept))
    for role, result in by_role.items():
        package = partial(_package, TOKENS_PREFIX + role, role, bundle, published.versions, result)
        published.register(TOKENS_PREFIX + role, result.digest, package)
    return [TOKENS_PREFIX + role for role in by_role]


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


def trade_off(tasks: Sequence[Task], profile: Profile, batch: int = 32) -> Figure:
    """Draw test accuracy per task (lines) and throughput at one batch size (bars) over gamma."""
    gammas = profile.latency.settings
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    place = np.arange(len(gammas))
    rates = [batch / profile.latency.at(gamma, batch) for gamma in gammas]
    right.bar(place, rates, color="#d9dee6", width=0.7, zorder=0)
    right.set_ylabel(f"images per second at batch {batch} (bars)", color="#6b7686")
    for task in tasks:
        left.plot(place, [task.test_accuracy[g] for g in gammas], marker="o", linewidth=2, label=task.name, zorder=3)
    left.set_zorder(right.get_zorder() + 1)
    left.set_frame_on(False)
    left.set_xticks(place, [f"{g:+d}" if g else "0" for g in gammas])
    left.set(xlabel="gamma: tokens merged (-) or prompts added (+) per layer", ylabel="accuracy on held-out images")
    left.legend(loc="lower right", frameon=True)
    left.set_title("What each gamma earns and what it costs")
    return figure


def rate_map(profile: Profile) -> Figure:
    """Draw the derived rate-to-gamma rule as a staircase (the paper's Table I, but measured)."""
    rule = profile.rule
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    last = rule.below[-1] * 1.2 if rule.below else 1.0
    axes.stairs(rule.gammas, [0.0, *rule.below, last], linewidth=2.5, color="#2a5db0", baseline=None)
    axes.set(xlabel="arrival rate (requests per second and device)", ylabel="gamma", yticks=sorted(rule.gammas))
    axes.grid(alpha=0.3)
    axes.set_title("Which gamma the rate rule picks")
    return figure


def sweeps(swept: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw per task the accuracy of every learning rate's trial, with the plain head's as a dotted line."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    for index, (task, sweep) in enumerate(swept.items()):
        axes.plot(sweep["rates"], sweep["accuracy"], marker="o", linewidth=2, color=f"C{index}", label=task)
        axes.axhline(sweep["plain"], linestyle=":", color=f"C{index}")
    rates = sorted({rate for sweep in swept.values() for rate in sweep["rates"]})
    axes.set(xscale="log", xlabel="learning rate of the prompts (dotted: gamma 0)", title="Trials of the learning rate")
    axes.set_ylabel("accuracy on the held-out part of the fit split")
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.legend()
    return figure
