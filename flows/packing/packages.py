"""What the registered models of packing are published with: signature, example, parameters, metrics, tags. No MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from flows.keys import StageResult
from flows.live import RECORD, text_of
from flows.packing.live import GENERATOR, ORIGIN, PREDICTOR, Record, generator_model, predictor_model
from flows.packing.plan import Choice, Fared, told
from flows.release import TRAINING, commit, metric
from pliant.packing.artifact import Generator, Packing, Predictor
from registry.names import PACKING_PREFIX
from registry.package import Package

PROMPTS = ("Summarise: Return the sorted array.", "What kind of thing is it? Raised when a file is lost.")
PLAN = "pliant.plan"
"""Tag of a plan's version: in a sentence, how it fares in the simulator beside on-demand paging."""


def generator_package(name: str, generator: Generator, folder: Path, made: StageResult) -> Package:
    """`name`: of the model as clients call it. Inputs and outputs are examples: their types become the signature."""
    notes = made.get("notes", {})
    config = json.loads(generator.config)
    shape = {key: config[key] for key in ("model_type", "num_hidden_layers", "hidden_size") if key in config}
    return Package(
        generator_model(name),
        folder,
        {"text": np.array(PROMPTS)},
        {
            "completion": np.array(["An array.", "a class"]),
            "tokens": np.array([4, 3]),
            "finished": np.array(["stop", "stop"]),
        },
        options={"max_tokens": 64},
        config={"device": "cpu"},
        params={"context": generator.context, "parameters": parameters(generator), **shape},
        metrics={"generator_seconds": float(notes.get("seconds", 0.0))},
        tags={"pliant.git_commit": commit(), "pliant.data": generator.data, TRAINING: json.dumps(notes)},
    )


def predictor_package(name: str, predictor: Predictor, folder: Path, made: StageResult) -> Package:
    notes = made.get("notes", {})
    config = json.loads(predictor.config)
    shape = {key: config[key] for key in ("model_type", "num_hidden_layers", "hidden_size", "dim") if key in config}
    quantiles = {f"q{level:g}": np.array([8.0, 9.0]) for level in predictor.levels}
    return Package(
        predictor_model(name),
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
    """`versions`: of the generator's and the predictor's models; `data`: fingerprint of the prompts and lengths.

    `origin`: digest of the plan that this one descends from; empty for one that the flow made from the beginning.
    """
    memory = packing.memory
    asked = {"arrival": np.array([0.0, 0.1]), "prompt_tokens": np.array([20, 30]), "output_tokens": np.array([10, 40])}
    answered = {"first_token": np.zeros(2), "seconds": np.zeros(2), "preemptions": np.zeros(2, np.int64)}
    return Package(
        PACKING_PREFIX + packing.name,
        folder,
        asked,
        answered,
        options={"policy": "default"},
        config={"context": context},
        params={
            "pages": memory.pages,
            "page_tokens": memory.page_tokens,
            "host_pages": memory.host_pages,
            "step_tokens": memory.step_tokens,
            "kv_bytes": packing.kv_bytes,
            "level": packing.level,
            "patience": packing.patience,
            "seconds": packing.seconds,
        },
        metrics=plan_metrics(packing, choice),
        tags={
            "pliant.git_commit": commit(),
            "pliant.device": packing.device_class,
            "pliant.data": data,
            PLAN: told(choice),
            GENERATOR: versions[0],
            PREDICTOR: versions[1],
            RECORD: text_of(record),
            **({ORIGIN: origin} if origin else {}),
        },
    )


def predictor_metrics(predictor: Predictor) -> dict[str, float]:
    """As it was judged on held-out prompts."""
    return {metric(name): float(value) for name, value in predictor.metrics.items()}


def plan_metrics(packing: Packing, choice: Choice) -> dict[str, float]:
    """Per policy what the simulator says of the reference workload, and how far the step times are off their fit."""
    steps = packing.steps
    made = {"steps.error": steps.error, "steps.base": steps.base, "steps.swap": steps.swap}
    made |= {
        "requests_observed": float(len(packing.output_tokens)),
        "output_tokens": float(packing.output_tokens.mean()),
    }
    for one in choice.policies:
        made |= {f"simulated.{name}.{one.policy}": value for name, value in figures(one).items()}
    return made


def figures(one: Fared) -> dict[str, float]:
    return {
        "mean_seconds": one.mean,
        "p99_seconds": one.p99,
        "tokens_per_second": one.tokens_per_second,
        "recomputed": one.recomputed,
        "preemptions": one.preemptions,
        "batch": one.batch,
    }


def parameters(one: Generator | Predictor) -> int:
    return sum(array.size for array in one.weights.values())


def choice_of(notes: Mapping[str, Any]) -> Choice:
    """From the notes of a stage, which are plain JSON."""
    found = notes["choice"]
    tried, policies = (tuple(Fared(**one) for one in found[key]) for key in ("tried", "policies"))
    return Choice(found["level"], found["patience"], found["within"], tried, policies)
