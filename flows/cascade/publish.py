"""What a run of the cascade flow publishes: its metrics, figures and reports, and the registered models of each task.

A task is one registered model, each of its levels another: the task's version names the levels' versions. Knows no Prefect
and no MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import binomtest

from pliant.cascade.artifact import Candidate, Cascade, Exit, Level, LevelProfile, Outputs
from pliant.cascade.calibrate import Reliability, reliability
from pliant.cascade.evaluate import EvaluationData
from pliant.cascade.route import answers, choose, confidence
from pliant.flows.cascade.champions import Record, Saved
from pliant.flows.cascade.config import CascadeFlowConfig
from pliant.flows.cascade.stages import TaskResults
from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.release import Publication, commit, metric
from pliant.flows.stage import Notes, noted
from pliant.flows.trained import described, draw_curves
from pliant.flows.trained import noted as of_training
from pliant.models.artifact import Classifier
from pliant.registry.mlflow_store import Run
from pliant.registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level
from pliant.registry.package import Example, Option, Package
from pliant.registry.releases import GAP, table
from pliant.training.classifier import Curves

matplotlib.use("Agg")

FIRST = ("Return the sorted array.", "Raised when a connection is lost.")
SECOND = ("The input is not changed.", "Raised when a file is lost.")


def register(published: Publication, config: CascadeFlowConfig, task: TaskResults) -> list[str]:
    """Log and register the task's levels and the task itself, and return the names of their models in this order."""
    log_task(published.run, task)
    cascade = task.plan.load()
    versions: dict[str, int] = {}
    for level in reversed(cascade.levels):  # an exit names the version of its classifier
        result = task.levels[level.name]
        package = partial(level_package, result.load(), level, cascade, versions, result.folder, result.notes)
        versions[level.name] = published.register(cascade_level(task.name, level.name), result.digest, package)
    outputs, test, *float32 = (Saved(each.key, each.digest) for each in (task.outputs, task.test, *task.float32))
    record = Record(config.plan, config.latency, config.threads, outputs, test, tuple(float32))
    versions = {level.name: versions[level.name] for level in cascade.levels}
    name, plan, tested = CASCADE_TASK + task.name, task.plan, len(task.test.load().labels)
    published.register(name, plan.digest, lambda: task_package(cascade, versions, plan.folder, record, tested))
    return [*(cascade_level(task.name, level) for level in versions), name]


def log_task(run: Run, task: TaskResults) -> None:
    """Log metrics, figures and the data set."""
    cascade = task.plan.load()
    run.dataset(task.name, cascade.data, task.name)
    metrics = task_metrics(cascade) | (task.linear.load().metrics() if task.linear else {})
    run.metrics({f"{name}.{task.name}": value for name, value in metrics.items()})
    for level in cascade.levels:
        run.metrics({f"{name}.{task.name}.{level.name}": value for name, value in level_metrics(level).items()})
    if repeats := task.texts.data.repeats:
        run.document(f"data-{task.name}", {**asdict(repeats), "told": str(repeats)})
    notes = {name: result.notes for name, result in task.levels.items()}
    run.document(f"training-{task.name}", notes)
    notes = {name: each for name, each in notes.items() if "curves" in each}  # of classifiers
    run.document(f"precision-{task.name}", {"precision": cascade.precision, "reason": task.arithmetic})
    learnt = {name: noted(Curves, each, "curves") for name, each in notes.items()}
    for name, each in notes.items():
        key = f"{task.name}.{metric(name)}"
        run.metrics({f"training_seconds.{key}": each["seconds"], f"parameters.{key}": each["parameters"]})
    run.figure(f"candidates-{cascade.task}", draw_candidates(cascade))
    if learnt:
        run.figure(f"curves-{cascade.task}", draw_curves(learnt))
    for name, before, after in reliabilities(cascade, task.test.load()):
        run.figure(f"reliability-{cascade.task}-{name}", draw_reliability(name, before, after))


def reliabilities(cascade: Cascade, test: Outputs) -> Iterator[tuple[str, Reliability, Reliability]]:
    """Yield every level's name, uncalibrated and calibrated reliability, on the test split.

    A regression has no confidence before calibration.
    """
    ground = EvaluationData(test, cascade.levels, cascade.tolerance)
    for level, saved in zip(cascade.levels, test.levels, strict=True):
        diagrams = []
        for profile in (replace(level, temperature=1.0), level):
            answer_RK = answers(profile, cascade.tolerance, saved.logits, saved.length)
            diagrams.append(reliability(confidence(answer_RK, ground.regression), ground.correct(answer_RK)))
        yield level.name, diagrams[0], diagrams[1]


def level_package(
    artifact: Level, level: LevelProfile, cascade: Cascade, versions: Mapping[str, int], folder: Path, notes: Notes
) -> Package:
    """Return a level's package. Inputs and outputs are examples: their types become the model's signature.

    `versions`: those of the larger levels' models, by name.
    """
    regression, config = not artifact.classes, {"device": "cpu"}
    if isinstance(artifact, Exit):
        (trunk,) = (each.name for each in cascade.levels if each.classifier == artifact.large)
        config["trunk"] = f"models:/{cascade_level(cascade.task, trunk)}/{versions[trunk]}"
    params = {"classes": len(artifact.classes)}
    params |= {"layers": artifact.layers} if isinstance(artifact, Exit) else {"max_length": artifact.max_length}
    package = Package(
        cascade_level(artifact.task, artifact.name),
        folder,
        texts(cascade.pair),
        {"label": _labels(regression)} | ({} if regression else {"confidence": np.zeros(2)}),
        config=config,
        params=params,
        metrics=level_metrics(level),
    )
    return (described if isinstance(artifact, Classifier) else of_training)(package, artifact, notes)


def task_package(cascade: Cascade, levels: Mapping[str, int], folder: Path, record: Record, tested: int = 0) -> Package:
    """Return a task's package; `levels`: name -> version of its model; `tested`: texts of the test split; 0: not known."""
    where: dict[str, Option] = {
        f"model.{level}": f"models:/{cascade_level(cascade.task, level)}/{version}" for level, version in levels.items()
    }
    outputs = {"label": _labels(not cascade.classes), "confidence": np.zeros(2)}
    versions = {f"{LEVEL_TAG}{level}": version for level, version in levels.items()}
    return Package(
        CASCADE_TASK + cascade.task,
        folder,
        texts(cascade.pair),
        outputs | {"level": np.array(["small", "large"])},
        options={"candidate": cascade.candidates[0].name, "seed": 0},
        config={"device": "cpu", **where},
        params={
            "classes": len(cascade.classes),
            "target": cascade.target,
            "confidence": cascade.confidence,
            "tolerance": cascade.tolerance,
            "precision": cascade.precision,
            "candidates": [candidate.name for candidate in cascade.candidates],
            "promise": cascade.promise,
            "labels": cascade.candidates[0].labels,
        },
        metrics=task_metrics(cascade),
        card=card(cascade, tested),
        tags={
            "pliant.git_commit": commit(),
            "pliant.data": cascade.data,
            "pliant.device": cascade.device,
            RECORD: record_to_json(record),
            **versions,
        },
    )


def card(cascade: Cascade, tested: int) -> str:
    """Return what calibration and the candidates earn, and what is served, in Markdown. `tested`: as in `task_package`."""

    def served(number: int, candidate: Candidate) -> str:
        best = choose(cascade, candidate.promised, candidate.seconds) == number
        return ("by its name alone", "for its accuracy or latency")[best] if number else "by default"

    def right(share: float) -> str:
        low, high = binomtest(round(share * tested), tested).proportion_ci(0.95) if tested else (0.0, 1.0)
        return f"{share:.1%} ({low:.1%} to {high:.1%})" if tested else f"{share:.1%}"

    levels = [
        (
            level.name,
            *((f"{level.temperature:.3f}", f"{level.error_before:.4f}") if cascade.classes else ("by its spread", "")),
            f"{level.error:.4f}",
            "yes" if level.spread or level.temperature != 1.0 else "no",
        )
        for level in cascade.levels
    ]
    large = next((each.seconds for each in cascade.candidates if each.levels == (len(cascade.levels) - 1,)), math.nan)
    candidates = [
        (
            each.name,
            f"{large / each.seconds:.2f}",
            right(cascade.test_accuracy[each.name]),
            *(f"{bound:.1%}" if bound else "" for bound in (each.promised, each.agreement)),
            served(number, each),
        )
        for number, each in enumerate(cascade.candidates)
    ]
    least = f"at least, at {cascade.confidence:.0%}"
    bounds = f"right, {least}", f"as the large model, {least}"
    heading = ("candidate", "times as fast as the large model", "right in the test (95% interval)", *bounds, "served")
    lines = table(("level", "temperature", "calibration error at 1", "calibrated", "served"), levels)
    return "\n".join([*lines, "", GAP, *table(heading, candidates)]).strip()


def level_metrics(level: LevelProfile) -> dict[str, float]:
    return {
        "profiling_accuracy": level.accuracy,
        "calibration_error.before": level.error_before,
        "calibration_error.after": level.error,
        "temperature": level.temperature,
    }


def task_metrics(cascade: Cascade) -> dict[str, float]:
    """Return per candidate the accuracies, mean seconds of a request alone, and the share that runs more than one level."""
    metrics: dict[str, float] = {}
    for candidate in cascade.candidates:
        name = metric(candidate.name)
        metrics |= {
            f"profiling_accuracy.{name}": candidate.accuracy,
            f"promised_accuracy.{name}": candidate.promised,
            f"seconds.{name}": candidate.seconds,
            f"rerouted.{name}": rerouted(candidate),
        }
    tested = {f"test_accuracy.{metric(name)}": share for name, share in cascade.test_accuracy.items()}
    return {"target_accuracy": cascade.target, **metrics, **tested}


def rows(cascade: Cascade) -> list[dict[str, Any]]:
    """Return a row of a table for every candidate: how often it is right, and what it costs."""
    return [
        {
            "candidate": candidate.name,
            "test accuracy": round(cascade.test_accuracy[candidate.name], 3),
            "promised": round(candidate.promised, 3),
            "ms alone": round(1000 * candidate.seconds, 2),
            "re-routed": f"{rerouted(candidate):.0%}",
        }
        for candidate in cascade.candidates
    ]


def rerouted(candidate: Candidate) -> float:
    """Return the share of the requests that its first level does not answer."""
    return candidate.shares[1] if len(candidate.shares) > 1 else 0.0


def texts(pair: bool) -> Example:
    columns = {"text": np.array(FIRST)}
    return columns | {"text_pair": np.array(SECOND)} if pair else columns


def _labels(regression: bool) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    return np.zeros(2) if regression else np.array(["a class", "another"])


def draw_reliability(level: str, before: Reliability, after: Reliability) -> Figure:
    """Draw accuracy over confidence of one level before and after calibration, and where its texts are (bars)."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    for axes, when, diagram, colour in zip(
        figure.subplots(1, 2, sharey=True), ("before", "after"), (before, after), ("C1", "C0"), strict=True
    ):
        bins, label = len(diagram.count), f"{when}: ECE {100 * diagram.error:.1f}%"
        shares, filled = diagram.count / diagram.count.sum(), diagram.count > 0
        edges = np.linspace(0, 1, bins + 1)[:-1]
        axes.bar(edges, shares, 1 / bins, align="edge", color="#d9dee6", edgecolor="white")
        axes.plot([0, 1], [0, 1], linestyle=":", color="#6b7686")
        line: dict[str, Any] = {"marker": "o", "linewidth": 2, "color": colour, "label": label}
        axes.plot(diagram.confidence[filled], diagram.accuracy[filled], **line)
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=f"confidence ({bins} bins)")
        axes.legend(loc="upper left")
    figure.axes[0].set_ylabel("accuracy (bars: share of the texts)")
    figure.suptitle(f"How far the confidence of {level} can be trusted")
    return figure


def draw_candidates(cascade: Cascade) -> Figure:
    """Draw accuracy over mean seconds of every candidate. The line below a point goes down to what it promises."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for index, candidate in enumerate(cascade.candidates):
        colour, milliseconds = f"C{index % 10}", [1000 * candidate.seconds]
        below = [[max(0.0, candidate.accuracy - candidate.promised)], [0.0]]
        mark, size = ("o", 7) if index else ("*", 14)  # the first serves by default
        form: dict[str, Any] = {"fmt": mark, "markersize": size, "capsize": 4, "color": colour, "label": candidate.name}
        axes.errorbar(milliseconds, [candidate.accuracy], below, **form)
        if (tested := cascade.test_accuracy.get(candidate.name)) is not None:
            axes.plot(milliseconds, [tested], marker="x", linestyle="none", color=colour)
    axes.axhline(cascade.target, linestyle=":", color="#6b7686", label=f"target {cascade.target:.3f}")
    axes.set(
        xlabel=f"mean milliseconds of one request alone ({cascade.device})",
        ylabel="accuracy (crosses: on the test split)",
    )
    axes.set_title(f"What the candidates of {cascade.task} cost and earn")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper")
    return figure
