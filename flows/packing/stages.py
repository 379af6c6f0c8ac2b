"""The stages of the packing flow: generator -> lengths -> predictor -> steps -> plan. Knows no Prefect and no MLflow."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pliant.flows.packing.lengths
import pliant.flows.packing.pace
import pliant.flows.packing.plan
import pliant.training.loading
import pliant.training.packing.comparison
import pliant.training.packing.corpus
import pliant.training.packing.encoder
import pliant.training.packing.generator
import pliant.training.packing.predictor
from pliant.flows.device import configured_class
from pliant.flows.keys import contents
from pliant.flows.packing.config import CORPUS, EMBEDDED, MemoryConfig, PackingFlowConfig
from pliant.flows.packing.lengths import Observed, PromptSet
from pliant.flows.packing.measure import Measured, converted, known_precision, measure, token_bytes
from pliant.flows.packing.plan import Choice
from pliant.flows.stage import Notes, Run, Stage, StageResult
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling.plan import best_batch
from pliant.precision import has_bfloat16
from pliant.progress import Progress
from pliant.training.packing.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Requests:
    """What a plan's reference workload draws from. Shapes: R requests, L levels."""

    prompt_tokens: NDArray[np.int32]  # [R]
    output_tokens: NDArray[np.int32]  # [R]
    forecasts: NDArray[np.float32]  # [R, L]
    buckets: NDArray[np.int32]  # [R]


@dataclass(frozen=True, slots=True)
class ModelData:
    """What a model is made of: the corpus, where something needs it, and the prompts that it is asked."""

    name: str
    corpus: Corpus | None
    prompts: PromptSet


@dataclass(frozen=True, slots=True)
class ModelResults:
    """All stages' results."""

    name: str
    generator: StageResult[Generator]
    lengths: StageResult[Observed]
    predictor: StageResult[Predictor]
    steps: StageResult[Measured]
    plan: StageResult[Packing]


def load_corpus(config: PackingFlowConfig) -> Corpus | None:
    """Return the corpus; None where nothing needs it. Generator and predictor's encoder are looked at before all work."""
    pliant.training.loading.look(config.generator, pliant.training.packing.generator.check)
    read = partial(pliant.training.packing.encoder.read, max_length=config.predictor.max_length)
    pliant.training.loading.look(config.predictor.encoder, read)
    if config.generator != EMBEDDED and config.prompts != CORPUS:
        return None
    return pliant.training.packing.corpus.load(config.seed)


def _generator_of(config: PackingFlowConfig, corpus: Corpus | None) -> dict[str, Any]:
    embedded = config.generator == EMBEDDED
    return {
        "generator": config.generator,
        "name": config.name,
        "files": list(contents(config.generator)),
        "embedded": asdict(config.embedded) if embedded else None,
        "data": corpus.fingerprint if corpus and embedded else None,
        "transformers": version("transformers"),
        "precision": config.precision,
        "device": _device(config) if config.precision == "auto" else None,
    }


def make_generator(config: PackingFlowConfig, corpus: Corpus | None, progress: Progress) -> tuple[Generator, Notes]:
    """Make the generator in the precision to serve it in, and save it under the model's name."""
    began = time.monotonic()
    read = new_generator(config, corpus, progress)
    _compare(config, read)
    generator, seconds = converted(read, config)
    if generator.precision != read.precision:
        _compare(config, generator)
    notes = {
        "seconds": time.monotonic() - began,
        "source": config.generator,
        "precision": generator.precision,
        "forward_seconds": seconds,
    }
    return replace(generator, name=config.name), notes


def new_generator(config: PackingFlowConfig, corpus: Corpus | None, progress: Progress) -> Generator:
    """Train, read or download the generator."""
    if config.generator == EMBEDDED:
        assert corpus is not None  # load_corpus gives it where the generator is embedded
        return pliant.training.packing.generator.train(config.embedded, corpus, progress)
    generator = pliant.training.packing.generator.load(config.generator, known_precision(config) or "float32")
    progress(1, 1)
    return generator


def _compare(config: PackingFlowConfig, generator: Generator) -> None:
    """Raise `InputError` unless the engine writes as transformers does. The embedded generator is of the tested Llamas."""
    if config.generator != EMBEDDED:
        pliant.training.packing.comparison.compare(config.generator.partition(":")[2], generator, config.device)


def _lengths_of(config: PackingFlowConfig, prompts: PromptSet) -> dict[str, Any]:
    return {"config": asdict(config.lengths), "prompts": prompts.fingerprint, "seed": config.seed}


def make_lengths(
    config: PackingFlowConfig, generator: StageResult[Generator], prompts: PromptSet, progress: Progress
) -> tuple[Observed, Notes]:
    began = time.monotonic()
    observed = pliant.flows.packing.lengths.observe(
        generator.load(), prompts, config.lengths, config.device, config.threads, config.seed, progress
    )
    return observed, {
        "seconds": time.monotonic() - began,
        "requests": len(observed.output_tokens),
        "tokens": int(observed.output_tokens.sum()),
        "limited": observed.limited,
    }


def _predictor_of(config: PackingFlowConfig) -> dict[str, Any]:
    return {"config": asdict(config.predictor), "name": config.name, "transformers": version("transformers")}


def make_predictor(
    config: PackingFlowConfig, generator: StageResult[Generator], lengths: StageResult[Observed], progress: Progress
) -> tuple[Predictor, Notes]:
    """Train the predictor on the lengths to fit, and judge it by those held out."""
    began, observed = time.monotonic(), lengths.load()
    predictor = pliant.training.packing.predictor.train(
        config.predictor,
        observed.part(held_out=False),
        progress,
        name=config.name,
        generator=generator.digest,
        test=observed.part(held_out=True),
        device=config.device,
    )
    return predictor, {"seconds": time.monotonic() - began, "judged": dict(predictor.metrics)}


def _steps_of(config: PackingFlowConfig) -> dict[str, Any]:
    return {"config": asdict(config.steps), "memory": asdict(config.memory), "device": _device(config)}


def _device(config: PackingFlowConfig) -> tuple[object, ...]:
    """Return all that times depend on: two machines of one class may differ in cores and in instructions."""
    return configured_class(config), os.cpu_count(), has_bfloat16(config.device)


def make_steps(
    config: PackingFlowConfig, generator: StageResult[Generator], progress: Progress
) -> tuple[Measured, Notes]:
    began = time.monotonic()
    measured = measure(config, generator.load(), progress)
    notes = {"seconds": time.monotonic() - began, "points": len(measured.points), "error": measured.steps.error}
    return measured, notes


def _plan_of(config: PackingFlowConfig) -> dict[str, Any]:
    return {"plan": asdict(config.plan), "reference": asdict(config.reference), "name": config.name}


def make_plan(
    config: PackingFlowConfig,
    generator: StageResult[Generator],
    lengths: StageResult[Observed],
    predictor: StageResult[Predictor],
    steps: StageResult[Measured],
    progress: Progress,
) -> tuple[Packing, Notes]:
    loaded, forecaster, measured, observed = generator.load(), predictor.load(), steps.load(), lengths.load()
    requests = requests_of(observed, forecaster)
    draft = Packing(
        name=config.name,
        generator=generator.digest,
        predictor=predictor.digest,
        device_class=measured.device,
        memory=measured.memory,
        kv_bytes=token_bytes(loaded.config, measured.precision),
        steps=measured.steps,
        level=0.0,
        patience=0.0,
        prompt_tokens=requests.prompt_tokens,
        output_tokens=requests.output_tokens,
        forecasts=requests.forecasts,
        buckets=requests.buckets,
        seconds=config.plan.seconds,
        precision=measured.precision,
    )
    planned, choice = finish(draft, loaded.context, config, progress)
    pace = pliant.flows.packing.pace.measure(forecaster, observed.part(held_out=True).prompts, planned, config.device)
    return planned, {"choice": asdict(choice), "pace": asdict(pace)}


def finish(draft: Packing, context: int, config: PackingFlowConfig, progress: Progress) -> tuple[Packing, Choice]:
    """Choose the sequences of an iteration, level and patience; return the finished plan and the choice."""
    allowed = min(config.memory.sequences, config.memory.step_tokens)
    best = best_batch(draft.steps, draft.prompt_tokens.tolist(), draft.output_tokens.tolist(), allowed)
    draft = replace(draft, memory=replace(draft.memory, sequences=best))
    choice = pliant.flows.packing.plan.choose(draft, context, config.plan, config.reference, progress)
    return replace(draft, level=choice.level, patience=choice.patience), choice


def requests_of(observed: Observed, predictor: Predictor) -> Requests:
    """Return the requests that were held out, with the predictor's forecasts of them."""
    forecasts, buckets = forecasts_of(predictor, observed.part(held_out=True).prompts)
    rows = slice(observed.fit, None)
    return Requests(observed.prompt_tokens[rows], observed.output_tokens[rows], forecasts, buckets)


def forecasts_of(predictor: Predictor, prompts: tuple[str, ...]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return [R, L] quantiles in tokens and [R] upper bounds of the predicted class."""
    predictions = PredictorModel.of(predictor).predict(prompts)
    tokens_RL = np.array([prediction.tokens for prediction in predictions], np.float32)
    return tokens_RL, np.array([prediction.bucket for prediction in predictions], np.int32)


GENERATOR = Stage(
    "generator",
    Generator,
    make_generator,
    _generator_of,
    folder="packing/generator-{config.name}",
    bar="{config.name}: generator",
    download=True,
)
UNTIMED_GENERATOR = replace(GENERATOR, code=(new_generator, known_precision))
"""Of one that no engine has run, to time or compare it, so that the engine's code does not count."""
LENGTHS = Stage(
    "lengths",
    Observed,
    make_lengths,
    _lengths_of,
    folder="packing/lengths-{config.name}",
    bar="{config.name}: lengths",
    measured=True,
)
PREDICTOR = Stage(
    "predictor",
    Predictor,
    make_predictor,
    _predictor_of,
    folder="packing/predictor-{config.name}",
    bar="{config.name}: predictor",
)
STEPS = Stage(
    "steps",
    Measured,
    make_steps,
    _steps_of,
    folder="packing/steps-{config.name}",
    bar="{config.name}: step profile",
    code=(make_steps, MemoryConfig),
    measured=True,
)
PLAN = Stage(
    "plan",
    Packing,
    make_plan,
    _plan_of,
    folder="packing/plan-{config.name}",
    bar="{config.name}: plan",
    measured=True,
)


def generator_stage(config: PackingFlowConfig) -> Stage[Generator]:
    """Return the stage that makes the generator."""
    return UNTIMED_GENERATOR if config.generator == EMBEDDED and known_precision(config) else GENERATOR


def run_model(run: Run, config: PackingFlowConfig, data: ModelData) -> ModelResults:
    """Run every stage of one model."""
    generator = run(generator_stage(config), config, data.corpus)
    lengths = run(LENGTHS, config, generator, data.prompts)
    predictor = run(PREDICTOR, config, generator, lengths)
    steps = run(STEPS, config, generator)
    plan = run(PLAN, config, generator, lengths, predictor, steps)
    repeats = data.prompts.repeats
    return ModelResults(config.name, generator, lengths.noted(repeats=repeats and str(repeats)), predictor, steps, plan)
