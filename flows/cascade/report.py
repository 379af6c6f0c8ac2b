"""What a run of the cascade flow logs of one task: metrics, curves by epoch, figures, the data set. Knows no Prefect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flows import curves
from flows.cascade import figures
from flows.cascade.packages import level_metrics, task_metrics
from flows.cascade.stages import TaskMade
from flows.release import metric
from pliant.cascade.artifact import Cascade, LevelProfile, Outputs
from pliant.cascade.calibrate import Reliability, reliability
from pliant.cascade.evaluate import Ground
from pliant.cascade.route import answers, confidence
from registry.mlflow_run import Run
from registry.store import FolderStore


def log_task(run: Run, made: TaskMade, store: FolderStore) -> None:
    cascade = store.load(Cascade, made.plan["key"], made.plan["digest"])
    run.dataset(made.task, cascade.data, made.task)
    run.metrics({f"{name}.{made.task}": value for name, value in task_metrics(cascade).items()})
    for level in cascade.levels:
        named = {f"{name}.{made.task}.{level.name}": value for name, value in level_metrics(level).items()}
        run.metrics(named)
    notes = {name: one["notes"] for name, one in made.levels.items() if "notes" in one}
    run.document(f"training-{made.task}", notes)
    for name, noted in notes.items():
        _log_curves(run, f"{made.task}.{metric(name)}", noted)
    _log_figures(run, cascade, store.load(Outputs, made.test["key"], made.test["digest"]), notes)


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
    """Per level, on the test split: uncalibrated and calibrated. A regression has no confidence before calibration."""
    ground = Ground(test, cascade.levels, cascade.tolerance)
    for level, saved in zip(cascade.levels, test.levels, strict=True):
        diagrams = []
        for profile in (_uncalibrated(level), level):
            answer_RK = answers(profile, cascade.tolerance, saved.logits, saved.length)
            diagrams.append(reliability(confidence(answer_RK, ground.regression), ground.correct(answer_RK)))
        yield level.name, diagrams[0], diagrams[1]


def _uncalibrated(level: LevelProfile) -> LevelProfile:
    return replace(level, temperature=1.0)
