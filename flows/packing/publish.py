"""What the packing flows publish: metrics, figures and reports, and the registered models.

Three registered models a name: generator, predictor and plan; the plan's version names those of the others. Knows no
Prefect and no MLflow.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pliant.flows.champions import RECORD, record_to_json
from pliant.flows.packing import figures as packing_figures
from pliant.flows.packing.champions import GENERATOR, ORIGIN, PREDICTOR, Record, origin_of
from pliant.flows.packing.config import PackingFlowConfig
from pliant.flows.packing.learn import LoadedChampion, RetrainResults
from pliant.flows.packing.plan import Choice, Pace, PolicyFigures, describe
from pliant.flows.packing.stages import ModelResults
from pliant.flows.release import TRAINING, Publication, commit, metric
from pliant.flows.stage import Notes, StageResult
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.registry.mlflow_store import Run
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.registry.package import Package

PROMPTS = ("Summarise: Return the sorted array.", "What kind of thing is it? Raised when a file is lost.")
PLAN = "pliant.plan"
"""Tag of a plan's version: in a sentence, its figures in the simulator beside on-demand paging."""


def register(published: Publication, config: PackingFlowConfig, model: ModelResults) -> list[str]:
    """Log and register a model's generator, predictor and plan, and return the names of their models in this order."""
    run, predictor, measured = published.run, model.predictor.load(), model.steps.load()
    run.dataset(model.name, predictor.data, model.name)
    stages: dict[str, StageResult[Any]] = {
        "generator": model.generator,
        "lengths": model.lengths,
        "predictor": model.predictor,
        "steps": model.steps,
    }
    notes = {name: dict(result.notes) for name, result in stages.items()}
    run.document("stages", notes)
    seconds = {f"seconds.{name}": float(noted.get("seconds", 0.0)) for name, noted in notes.items()}
    run.metrics(seconds | predictor_metrics(predictor))
    run.figure("steps", packing_figures.steps(measured.points, measured.steps, measured.device))
    log_plan(run, model.plan.load(), choice_of(model.plan.notes))
    if "pace" in model.plan.notes:  # not in a result that an earlier release has cached
        pace = Pace(**model.plan.notes["pace"])
        run.metrics(pace.metrics())
        run.document("pace", {"told": pace.describe()})
    generator, result = model.generator.load(), model.generator
    package = partial(generator_package, model.name, generator, result.folder, result.notes)
    version = published.register(PACKING_GENERATOR + model.name, result.digest, package)
    record = Record(config.memory, config.steps, config.plan, config.reference, config.threads)
    names = _register_plan(published, record, (generator, version), model.predictor, model.plan)
    return [PACKING_GENERATOR + model.name, *names]


def register_retrained(published: Publication, loaded: LoadedChampion, results: RetrainResults) -> list[str]:
    """Log and register a predictor that was trained further, and its plan, as `register` does.

    Logged is how far predictions were off in service, and the predictor before and after.
    """
    run, predictor, champion = published.run, results.predictor.load(), loaded.champion
    run.dataset(f"{results.name}-observed", predictor.data, results.name)
    run.document("predictor", dict(results.predictor.notes))
    run.metrics({f"observed.{name}": value for name, value in results.drift.items()} | predictor_metrics(predictor))
    log_plan(run, results.plan.load(), choice_of(results.plan.notes))
    generator = loaded.generator, champion.version(GENERATOR)
    remembered, origin = champion.record(Record), origin_of(champion)
    return _register_plan(published, remembered, generator, results.predictor, results.plan, origin)


def _register_plan(
    published: Publication,
    record: Record,
    generator: tuple[Generator, int],
    predictor: StageResult[Predictor],
    plan: StageResult[Packing],
    origin: str = "",
) -> list[str]:
    """Register a predictor and then the plan made with it.

    `generator`: with the version of its model; `origin`: digest of the plan that this one descends from, if any.
    """
    packing, trained = plan.load(), predictor.load()
    names = [PACKING_PREDICTOR + packing.name, PACKING_PREFIX + packing.name]
    package = partial(predictor_package, packing.name, trained, predictor.folder, predictor.notes)
    versions = generator[1], published.register(names[0], predictor.digest, package)
    choice, context = choice_of(plan.notes), generator[0].context
    package = partial(plan_package, packing, context, versions, plan.folder, choice, record, trained.data, origin)
    published.register(names[1], plan.digest, package)
    return names


def log_plan(run: Run, packing: Packing, choice: Choice) -> None:
    """Log what a plan is made of, and how its policies compare in the simulator."""
    run.metrics(plan_metrics(packing, choice))
    run.document("plan", {"told": describe(choice), "level": choice.level, "patience": choice.patience})
    run.figure("predicted", packing_figures.predicted(packing))
    run.figure("lengths", packing_figures.lengths(packing))
    run.figure("policies", packing_figures.policies(choice))


def generator_package(name: str, generator: Generator, folder: Path, notes: Notes) -> Package:
    """Return a generator's package; `name`: of the model as clients call it.

    Inputs and outputs are examples: their types become the signature.
    """
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
        tags={"pliant.git_commit": commit(), "pliant.data": generator.data, TRAINING: json.dumps(dict(notes))},
    )


def predictor_package(name: str, predictor: Predictor, folder: Path, notes: Notes) -> Package:
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
        tags={"pliant.git_commit": commit(), "pliant.data": predictor.data, TRAINING: json.dumps(dict(notes))},
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


def choice_of(notes: Notes) -> Choice:
    """Return the choice that a stage's notes, which are plain JSON, hold."""
    choice = notes["choice"]
    tried, policies = (tuple(PolicyFigures(**row) for row in choice[key]) for key in ("tried", "policies"))
    return Choice(choice["level"], choice["patience"], choice["within"], tried, policies)
