"""The stages of the packing flow as plain functions over a store: each reads artifacts, makes one, and saves it.

Also what each stage depends on, as a key (see flows/keys.py). Knows no Prefect and no MLflow.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray

import flows.packing.lengths
import flows.packing.pace
import flows.packing.plan
import training.loading
import training.packing.comparison
import training.packing.corpus
import training.packing.encoder
import training.packing.generator
import training.packing.predictor
from flows.device import configured_class
from flows.keys import StageResult, contents, keep, stage_key
from flows.packing.config import CORPUS, EMBEDDED, MemoryConfig, PackingFlowConfig
from flows.packing.lengths import Observed, PromptSet
from flows.packing.measure import Measured, measure, token_bytes
from flows.packing.plan import Choice
from flows.packing.precision import converted, known_precision
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.engine.model import PredictorModel
from pliant.packing.scheduling.plan import best_batch
from pliant.precision import has_bfloat16
from pliant.progress import Progress
from registry.store import FolderStore
from training.packing.corpus import Corpus


@dataclass(frozen=True, slots=True)
class Requests:
    """What a plan's reference workload draws from. Shapes: R requests, L levels."""

    prompt_tokens: NDArray[np.int32]  # [R]
    output_tokens: NDArray[np.int32]  # [R]
    forecasts: NDArray[np.float32]  # [R, L]
    buckets: NDArray[np.int32]  # [R]


@dataclass(frozen=True, slots=True)
class ModelResults:
    """All stages' results."""

    name: str
    generator: StageResult
    lengths: StageResult
    predictor: StageResult
    steps: StageResult
    plan: StageResult


def load_corpus(config: PackingFlowConfig) -> Corpus | None:
    """Return the corpus; None where nothing needs it. Generator and predictor's encoder are looked at before all work."""
    training.loading.look(config.generator, training.packing.generator.check)
    read = partial(training.packing.encoder.read, max_length=config.predictor.max_length)
    training.loading.look(config.predictor.encoder, read)
    if config.generator != EMBEDDED and config.prompts != CORPUS:
        return None
    return training.packing.corpus.load(config.seed)


def generator_key(config: PackingFlowConfig, corpus: Corpus | None) -> str:
    embedded = config.generator == EMBEDDED
    depends = {
        "generator": config.generator,
        "name": config.name,
        "files": list(contents(config.generator)),
        "embedded": asdict(config.embedded) if embedded else None,
        "data": corpus.fingerprint if corpus and embedded else None,
        "transformers": version("transformers"),
        "precision": config.precision,
        "device": _device(config) if config.precision == "auto" else None,
    }
    run = not (embedded and known_precision(config))  # by the engine, whose code counts where it is timed or compared
    made_by = (make_generator,) if run else (new_generator, known_precision)
    return stage_key(f"packing/generator-{config.name}", depends, *made_by)


def make_generator(
    config: PackingFlowConfig, corpus: Corpus | None, key: str, store: FolderStore, progress: Progress
) -> StageResult:
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
    return keep(store, key, replace(generator, name=config.name), notes)


def new_generator(config: PackingFlowConfig, corpus: Corpus | None, progress: Progress) -> Generator:
    """Train, read or download the generator."""
    if config.generator == EMBEDDED:
        assert corpus is not None  # load_corpus gives it where the generator is embedded
        return training.packing.generator.train(config.embedded, corpus, progress)
    generator = training.packing.generator.load(config.generator, known_precision(config) or "float32")
    progress(1, 1)
    return generator


def _compare(config: PackingFlowConfig, generator: Generator) -> None:
    """Raise `InputError` unless the engine writes as transformers does. The embedded generator is of the tested Llamas."""
    if config.generator != EMBEDDED:
        training.packing.comparison.compare(config.generator.partition(":")[2], generator, config.device)


def lengths_key(config: PackingFlowConfig, generator: StageResult, prompts: PromptSet) -> str:
    depends = {
        "config": asdict(config.lengths),
        "generator": generator["digest"],
        "prompts": prompts.fingerprint,
        "seed": config.seed,
    }
    return stage_key(f"packing/lengths-{config.name}", depends, make_lengths, measured=True)


def make_lengths(
    config: PackingFlowConfig,
    generator: StageResult,
    prompts: PromptSet,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    began, loaded = time.monotonic(), load_generator(store, generator)
    observed = flows.packing.lengths.observe(
        loaded, prompts, config.lengths, config.device, config.threads, config.seed, progress
    )
    notes = {
        "seconds": time.monotonic() - began,
        "requests": len(observed.output_tokens),
        "tokens": int(observed.output_tokens.sum()),
        "limited": observed.limited,
    }
    return keep(store, key, observed, notes)


def predictor_key(config: PackingFlowConfig, lengths: StageResult) -> str:
    depends = {
        "config": asdict(config.predictor),
        "lengths": lengths["digest"],
        "name": config.name,
        "transformers": version("transformers"),
    }
    return stage_key(f"packing/predictor-{config.name}", depends, make_predictor)


def make_predictor(
    config: PackingFlowConfig,
    generator: StageResult,
    lengths: StageResult,
    key: str,
    store: FolderStore,
    progress: Progress,
) -> StageResult:
    """Train the predictor on the lengths to fit, and judge it by those held out."""
    began, observed = time.monotonic(), load_observed(store, lengths)
    predictor = training.packing.predictor.train(
        config.predictor,
        observed.part(held_out=False),
        progress,
        name=config.name,
        generator=generator["digest"],
        test=observed.part(held_out=True),
        device=config.device,
    )
    notes = {"seconds": time.monotonic() - began, "judged": dict(predictor.metrics)}
    return keep(store, key, predictor, notes)


def steps_key(config: PackingFlowConfig, generator: StageResult) -> str:
    depends = {
        "config": asdict(config.steps),
        "memory": asdict(config.memory),
        "generator": generator["digest"],
        "device": _device(config),
    }
    return stage_key(f"packing/steps-{config.name}", depends, make_steps, MemoryConfig, measured=True)


def _device(config: PackingFlowConfig) -> tuple[object, ...]:
    """Return all that times depend on: two machines of one class may differ in cores and in instructions."""
    return configured_class(config), os.cpu_count(), has_bfloat16(config.device)


def make_steps(
    config: PackingFlowConfig, generator: StageResult, key: str, store: FolderStore, progress: Progress
) -> StageResult:
    began = time.monotonic()
    measured = measure(config, load_generator(store, generator), progress)
    notes = {"seconds": time.monotonic() - began, "points": len(measured.points), "error": measured.steps.error}
    return keep(store, key, measured, notes)


def plan_key(config: PackingFlowConfig, results: Mapping[str, StageResult]) -> str:
    """Return the plan's key; `results`: the generator, the lengths, the predictor and the steps, by these names."""
    depends = {
        "plan": asdict(config.plan),
        "reference": asdict(config.reference),
        "name": config.name,
        **{stage: result["digest"] for stage, result in results.items()},
    }
    return stage_key(f"packing/plan-{config.name}", depends, make_plan, measured=True)


def make_plan(
    config: PackingFlowConfig, results: Mapping[str, StageResult], key: str, store: FolderStore, progress: Progress
) -> StageResult:
    """Plan; `results` as for `plan_key`."""
    generator = load_generator(store, results["generator"])
    measured = store.load(Measured, results["steps"]["key"], results["steps"]["digest"])
    observed, predictor = load_observed(store, results["lengths"]), load_predictor(store, results["predictor"])
    requests = requests_of(observed, predictor)
    draft = Packing(
        name=config.name,
        generator=results["generator"]["digest"],
        predictor=results["predictor"]["digest"],
        device_class=measured.device,
        memory=measured.memory,
        kv_bytes=token_bytes(generator.config, measured.precision),
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
    planned, choice = finish(draft, generator.context, config, progress)
    pace = flows.packing.pace.measure(predictor, observed.part(held_out=True).prompts, planned, config.device)
    return keep(store, key, planned, {"choice": asdict(choice), "pace": asdict(pace)})


def finish(draft: Packing, context: int, config: PackingFlowConfig, progress: Progress) -> tuple[Packing, Choice]:
    """Choose the sequences of an iteration, level and patience; return the finished plan and the choice."""
    allowed = min(config.memory.sequences, config.memory.step_tokens)
    best = best_batch(draft.steps, draft.prompt_tokens.tolist(), draft.output_tokens.tolist(), allowed)
    draft = replace(draft, memory=replace(draft.memory, sequences=best))
    choice = flows.packing.plan.choose(draft, context, config.plan, config.reference, progress)
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


def load_generator(store: FolderStore, result: StageResult) -> Generator:
    return store.load(Generator, result["key"], result["digest"])


def load_predictor(store: FolderStore, result: StageResult) -> Predictor:
    return store.load(Predictor, result["key"], result["digest"])


def load_observed(store: FolderStore, result: StageResult) -> Observed:
    return store.load(Observed, result["key"], result["digest"])


def load_plan(store: FolderStore, result: StageResult) -> Packing:
    return store.load(Packing, result["key"], result["digest"])
