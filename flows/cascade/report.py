"""Logs one task of a run of the cascade flow: metrics, curves by epoch, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from flows import curves
from flows.cascade import figures
from flows.cascade.packages import level_metrics, task_metrics
from flows.cascade.stages import TaskResults, load_linear
from flows.release import metric
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.calibrate import Reliability, reliability
from pliant.cascade.evaluate import EvaluationData
from pliant.cascade.route import answers, confidence
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_task(run: Run, task: TaskResults, store: FolderStore) -> None:
    cascade = store.load(Cascade, task.plan["key"], task.plan["digest"])
    run.dataset(task.task, cascade.data, task.task)
    run.metrics({f"{name}.{task.task}": value for name, value in task_metrics(cascade).items()})
    compared = load_linear(store, task)
    if compared is not None:
        run.metrics({f"{name}.{task.task}": value for name, value in compared.metrics().items()})
    for level in cascade.levels:
        named = {f"{name}.{task.task}.{level.name}": value for name, value in level_metrics(level).items()}
        run.metrics(named)
    if task.texts is not None and (repeats := task.texts.data.repeats):
        run.document(f"data-{task.task}", {**asdict(repeats), "told": str(repeats)})
    notes = {name: result["notes"] for name, result in task.levels.items() if "notes" in result}
    run.document(f"training-{task.task}", notes)
    run.document(f"precision-{task.task}", {"precision": cascade.precision, "reason": task.arithmetic})
    for name, noted in notes.items():
        _log_curves(run, f"{task.task}.{metric(name)}", noted)
    _log_figures(run, cascade, store.load(Outputs, task.test["key"], task.test["digest"]), notes)


def _log_curves(run: Run, level: str, noted: Mapping[str, Any]) -> None:
    run.metrics({f"training_seconds.{level}": noted["seconds"], f"parameters.{level}": noted["parameters"]})
    curves.log_epochs(run, level, curves.curves_of(noted))


def _log_figures(run: Run, cascade: Cascade, test: Outputs, notes: Mapping[str, Any]) -> None:
    run.figure(f"candidates-{cascade.task}", figures.candidates(cascade))
    learnt = {name: curves.curves_of(noted) for name, noted in notes.items()}
    if learnt:
        run.figure(f"curves-{cascade.task}", curves.figure(learnt))
    for level, before, after in reliabilities(cascade, test):
        run.figure(f"reliability-{cascade.task}-{level}", figures.reliability(level, before, after))


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
