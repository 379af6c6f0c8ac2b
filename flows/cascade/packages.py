"""What a cascade's registered models are published with: signature, example, parameters, metrics, tags. Knows no MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flows.cascade.champions import Record
from flows.champions import RECORD, record_to_json
from flows.keys import StageResult
from flows.release import TRAINING, commit, metric
from pliant.cascade.artifact import Candidate, Cascade, LevelProfile
from pliant.models.artifact import Classifier
from registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level
from registry.package import Example, Option, Package

FIRST = ("Return the sorted array.", "Raised when a connection is lost.")
SECOND = ("The input is not changed.", "Raised when a file is lost.")


def level_package(
    classifier: Classifier, level: LevelProfile, pair: bool, folder: Path, result: StageResult
) -> Package:
    """Return a level's package. Inputs and outputs are examples: their types become the model's signature."""
    regression = not classifier.classes
    notes = result.get("notes", {})
    settings = json.loads(classifier.config)
    shape = {name: settings[name] for name in ("model_type", "num_hidden_layers", "hidden_size") if name in settings}
    return Package(
        cascade_level(classifier.task, classifier.name),
        folder,
        texts(pair),
        {"label": _labels(regression)} | ({} if regression else {"confidence": np.zeros(2)}),
        config={"device": "cpu"},
        params={
            "classes": len(classifier.classes),
            "max_length": classifier.max_length,
            "parameters": notes.get("parameters", 0),
            **shape,
        },
        metrics=level_metrics(level),
        tags={"pliant.git_commit": commit(), "pliant.data": classifier.data, TRAINING: json.dumps(notes)},
    )


def task_package(cascade: Cascade, levels: Mapping[str, int], folder: Path, record: Record) -> Package:
    """Return a task's package; `levels`: name -> version of its model."""
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
        },
        metrics=task_metrics(cascade),
        tags={
            "pliant.git_commit": commit(),
            "pliant.data": cascade.data,
            "pliant.device": cascade.device,
            RECORD: record_to_json(record),
            **versions,
        },
    )


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


def rerouted(candidate: Candidate) -> float:
    """Return the share of the requests that its first level does not answer."""
    return candidate.shares[1] if len(candidate.shares) > 1 else 0.0


def texts(pair: bool) -> Example:
    columns = {"text": np.array(FIRST)}
    return columns | {"text_pair": np.array(SECOND)} if pair else columns


def _labels(regression: bool) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    return np.zeros(2) if regression else np.array(["a class", "another"])
