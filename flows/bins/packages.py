"""What the registered models of the bins system are published with: signature, example, parameters, metrics. No MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.bins.champions import SCORE, VERSION, Record
from flows.bins.plan import Choice, ShapeTrial, describe
from flows.champions import RECORD, record_to_json
from flows.keys import StageResult
from flows.release import TRAINING, commit
from pliant.bins.artifact import Bins, Encoder
from registry.names import BINS_ENCODER, BINS_PREFIX
from registry.package import Example, Package

TEXTS = ("Return the sorted array.", "Raised when a connection is lost.")
PLAN = "pliant.plan"
"""Tag of a version of bins: in a sentence, which static runtimes were worth it."""
LENGTHS = "pliant.lengths"
"""Tag of a version of bins: where the lengths come from that they were chosen for."""


def encoder_package(encoder: Encoder, folder: Path, result: StageResult) -> Package:
    """Return an encoder's package. Inputs and outputs are examples: their types become the model's signature."""
    notes = result.get("notes", {})
    config = json.loads(encoder.config)
    shape = {name: config[name] for name in ("model_type", "num_hidden_layers", "hidden_size") if name in config}
    return Package(
        BINS_ENCODER + encoder.name,
        folder,
        {"text": np.array(TEXTS)},
        _outputs(encoder, int(config.get("hidden_size", 1))),
        config={"device": "cpu"},
        params={
            "head": encoder.head,
            "classes": len(encoder.classes),
            "pooling": encoder.pooling or "none",
            "normalize": encoder.normalize,
            "max_length": encoder.max_length,
            "parameters": notes.get("parameters", 0),
            **shape,
        },
        metrics=encoder_metrics(result),
        tags={"pliant.git_commit": commit(), "pliant.data": encoder.data, TRAINING: json.dumps(notes)},
    )


def bins_package(bins: Bins, version: int, folder: Path, notes: Mapping[str, Any], record: Record) -> Package:
    """Return the package of a stream's bins; `version`: of the encoder's model."""
    choice, weighed = choice_of(notes), weighed_of(notes)
    inputs = {"length": np.array([16, 200]), "batch": np.array([1, 4])}
    outputs = {"seconds": np.zeros(2), "padded_length": np.array([16, 200]), "padded_batch": np.array([1, 4])}
    return Package(
        BINS_PREFIX + bins.name,
        folder,
        inputs,
        outputs | {"runtime": np.array(["static", "dynamic"])},
        params={
            "engine": bins.engine,
            "precision": bins.precision,
            "placement": bins.placement,
            "slo": bins.slo,
            "edges": list(choice.edges),
            "shapes": [f"{'<= ' * shape.dynamic}{shape.length} x {shape.batch}" for shape in bins.shapes],
            "versions": dict(bins.versions),
        },
        metrics=bins_metrics(bins, choice, weighed),
        tags={
            "pliant.git_commit": commit(),
            "pliant.device": bins.device_class,
            LENGTHS: notes.get("source", "unknown"),
            PLAN: describe(weighed),
            VERSION: version,
            SCORE: json.dumps(notes.get("score")),
            RECORD: record_to_json(record),
        },
    )


def encoder_metrics(result: StageResult) -> dict[str, float]:
    notes = result.get("notes", {})
    score = {"test_accuracy": notes["score"]["accuracy"]} if "score" in notes else {}
    return {"encoder_seconds": notes.get("seconds", 0.0), **score}


def bins_metrics(bins: Bins, choice: Choice, weighed: tuple[ShapeTrial, ...]) -> dict[str, float]:
    """Return a request's mean seconds alone, padded and in the dynamic runtime, and how many static ones are kept."""
    count = max(1, min(len(choice.edges), len(choice.costs)))
    return {
        "bins": float(len(choice.edges)),
        "seconds.padded_to_bins": choice.costs[count - 1],
        "seconds.padded_to_longest": choice.costs[0],
        "seconds.dynamic": choice.dynamic,
        "seconds.load": bins.load_seconds,
        "static_shapes.measured": float(len(weighed)),
        "static_shapes.kept": float(sum(trial.kept for trial in weighed)),
        "requests_observed": float(bins.lengths.sum()),
    }


def choice_of(notes: Mapping[str, Any]) -> Choice:
    """Return the choice that a stage's notes, which are plain JSON, hold."""
    choice = notes["choice"]
    return Choice(tuple(choice["edges"]), tuple(choice["costs"]), choice["dynamic"])


def weighed_of(notes: Mapping[str, Any]) -> tuple[ShapeTrial, ...]:
    return tuple(ShapeTrial(**trial) for trial in notes["weighed"])


def _outputs(encoder: Encoder, width: int) -> Example:
    if encoder.head == "embedding":
        return np.zeros((2, width), np.float32)
    if not encoder.classes:
        return {"label": np.zeros(2)}
    return {"label": np.array(["a class", "another"]), "confidence": np.zeros(2)}
