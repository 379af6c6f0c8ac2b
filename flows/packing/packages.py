"""What the registered models of packing are published with: signature, example, parameters, metrics, tags. No MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.champions import RECORD, record_to_json
from flows.keys import StageResult
from flows.packing.champions import GENERATOR, ORIGIN, PREDICTOR, Record
from flows.packing.plan import Choice, PolicyFigures, describe
from flows.release import TRAINING, commit, metric
from pliant.packing.artifact import Generator, Packing, Predictor
from registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from registry.package import Package

PROMPTS = ("Summarise: Return the sorted array.", "What kind of thing is it? Raised when a file is lost.")
PLAN = "pliant.plan"
"""Tag of a plan's version: in a sentence, its figures in the simulator beside on-demand paging."""


def generator_package(name: str, generator: Generator, folder: Path, result: StageResult) -> Package:
    """Return a generator's package; `name`: of the model as clients call it.

    Inputs and outputs are examples: their types become the signature.
    """
    notes = result.get("notes", {})
    config = json.loads(generator.config)
    shape = {key: config[key] for key in ("model_type", "num_hidden_layers", "hidden_size") if key in config}
    return Package(
        PACKING_GENERATOR + name,
        folder,
        {"text": np.array(PROMPTS)},
        {
            "completion": np.array(["An array.", "a class"]),
            "tokens": np.array([4, 3]),
            "finished": np.array(["stop", "stop"]),
        },
        options={"max_tokens": 64},
        config={"device": "cpu"},
        params={
            "context": generator.context,
            "parameters": parameters(generator),
            "precision": generator.precision,
            **shape,
        },
        metrics={"generator_seconds": float(notes.get("seconds", 0.0))},
        tags={"pliant.git_commit": commit(), "pliant.data": generator.data, TRAINING: json.dumps(notes)},
    )


def predictor_package(name: str, predictor: Predictor, folder: Path, result: StageResult) -> Package:
    notes = result.get("notes", {})
    config = json.loads(predictor.config)
    shape = {key: config[key] for key in ("model_type", "num_hidden_layers", "hidden_size", "dim") if key in config}
    quantiles = {f"q{level:g}": np.array([8.0, 9.0]) for level in predictor.levels}
    return Package(
        PACKING_PREDICTOR + name,
        folder,
        {"text": np.array(PROMPTS)},
        quantiles | {"bucket": np.array([40, 40])},
        params={
            "generator": predictor.generator or "none",
            "max_length": predictor.max_length,
            "bucket_tokens": predictor.bucket_tokens,
            "parameters": parameters(predictor),
            **shape,
        },
        metrics=predictor_metrics(predictor),
        tags={"pliant.git_commit": commit(), "pliant.data": predictor.data, TRAINING: json.dumps(notes)},
    )


def plan_package(
    packing: Packing,
    context: int,
    versions: tuple[int, int],
    folder: Path,
    choice: Choice,
    record: Record,
    data: str,
    origin: str = "",
) -> Package:
    """Return a plan's package.

    `versions`: of the generator's and the predictor's models; `data`: fingerprint of the prompts and lengths.

    `origin`: digest of the plan that this one descends from; empty for one that the flow made from the beginning.
    """
    memory = packing.memory
    inputs = {"arrival": np.array([0.0, 0.1]), "prompt_tokens": np.array([20, 30]), "output_tokens": np.array([10, 40])}
    outputs = {"first_token": np.zeros(2), "seconds": np.zeros(2), "preemptions": np.zeros(2, np.int64)}
    return Package(
        PACKING_PREFIX + packing.name,
        folder,
        inputs,
        outputs,
        options={"policy": "default"},
        config={"context": context},
        params={
            "pages": memory.pages,
            "page_tokens": memory.page_tokens,
            "host_pages": memory.host_pages,
            "step_tokens": memory.step_tokens,
            "kv_bytes": packing.kv_bytes,
            "precision": packing.precision,
            "engine": packing.engine,
            "level": packing.level,
            "patience": packing.patience,
            "seconds": packing.seconds,
        },
        metrics=plan_metrics(packing, choice),
        tags={
            "pliant.git_commit": commit(),
            "pliant.device": packing.device_class,
            "pliant.data": data,
            PLAN: describe(choice),
            GENERATOR: versions[0],
            PREDICTOR: versions[1],
            RECORD: record_to_json(record),
            **({ORIGIN: origin} if origin else {}),
        },
    )


def predictor_metrics(predictor: Predictor) -> dict[str, float]:
    """Return the predictor's metrics, as it was judged on held-out prompts."""
    return {metric(name): float(value) for name, value in predictor.metrics.items()}


def describe_predictor(predictor: Predictor) -> str:
    """Return in a sentence how each kind of predictor that was made did, the published one first."""
    losses = {name: loss for name, loss in predictor.metrics.items() if name in ("linear_pinball", "encoder_pinball")}
    ranked = [
        f"{losses[name]:.4f} ({name.removesuffix('_pinball')})" for name in sorted(losses, key=losses.__getitem__)
    ]
    return f"pinball loss of the lengths {' against '.join(ranked)}, {predictor.metrics['constant_pinball']:.4f} (constant)"


def plan_metrics(packing: Packing, choice: Choice) -> dict[str, float]:
    """Return every policy's simulated figures on the reference workload, and the error of the step times' fit."""
    steps = packing.steps
    metrics = {
        "steps.error": steps.error,
        "steps.base": steps.base,
        "steps.swap": steps.swap,
        "requests_observed": float(len(packing.output_tokens)),
        "output_tokens": float(packing.output_tokens.mean()),
    }
    for policy in choice.policies:
        metrics |= {f"simulated.{name}.{policy.policy}": value for name, value in figures(policy).items()}
    return metrics


def figures(policy: PolicyFigures) -> dict[str, float]:
    return {
        "mean_seconds": policy.mean,
        "p99_seconds": policy.p99,
        "tokens_per_second": policy.tokens_per_second,
        "recomputed": policy.recomputed,
        "preemptions": policy.preemptions,
        "batch": policy.batch,
    }


def parameters(model: Generator | Predictor) -> int:
    return sum(array.size for array in model.weights.values())


def choice_of(notes: Mapping[str, Any]) -> Choice:
    """Return the choice that a stage's notes, which are plain JSON, hold."""
    choice = notes["choice"]
    tried, policies = (tuple(PolicyFigures(**row) for row in choice[key]) for key in ("tried", "policies"))
    return Choice(choice["level"], choice["patience"], choice["within"], tried, policies)
