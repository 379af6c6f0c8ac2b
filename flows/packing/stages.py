"""The stages of the packing flow: generator -> lengths -> predictor -> steps -> plan. Knows no Prefect and no MLflow.

The lengths of a generator's outputs are observed in the engine that serves. The predictor learns from the prompts to fit and
is judged by those held out. Of the embedded corpus neither are of texts that the generator was trained on: what it knows by
heart it answers at another length. Iterations are measured on the device at hand, with the memory and in the precision that
it is served with.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

import pliant.training.loading
import pliant.training.packing.comparison
import pliant.training.packing.corpus
import pliant.training.packing.generator
import pliant.training.packing.predictor
import pliant.training.packing.prompts
from pliant.device import free_bytes, reporting_memory
from pliant.errors import ArtifactError, InputError
from pliant.flows.config import configured_class
from pliant.flows.packing.config import CORPUS, EMBEDDED, LengthsConfig, MemoryConfig, PackingFlowConfig
from pliant.flows.packing.plan import Choice, choose, measure_pace
from pliant.flows.stage import Notes, Stage, StageResult, contents
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.chat import template_of
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import PredictorModel, in_precision, tokenizer_of
from pliant.packing.scheduling.iteration_cost import LinearCost, Point, fit
from pliant.packing.scheduling.reference import best_batch
from pliant.packing.scheduling.request import Memory, check_fits, pages_within
from pliant.precision import has_bfloat16, usable_precision
from pliant.profiling.packing.precision import fastest
from pliant.profiling.packing.steps import profile
from pliant.progress import Progress
from pliant.training import groups
from pliant.training.groups import Repeats
from pliant.training.packing.corpus import PARTS, Corpus
from pliant.training.packing.lengths import LengthData

DEFAULT, LOW = "float32", "bfloat16"
BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number in each precision: the cache has the model's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A stage's result alone: iterations as they were measured, and their fit."""

    KIND: ClassVar[str] = "packing-steps"
    SCHEMA: ClassVar[int] = 1

    device: str  # device class
    memory: Memory
    points: tuple[Point, ...]
    steps: LinearCost
    precision: str = "float32"  # in which the generator ran
    engine: str = "pliant"  # that ran it


Measure = Callable[[PackingFlowConfig, Generator, Progress], Measured]
"""Measures a generator as `measure` does, by an engine of its own."""


def measure(config: PackingFlowConfig, generator: Generator, progress: Progress) -> Measured:
    """Measure iterations of the engine on the device, with the memory that is served with.

    A generator whose precision the device lacks is measured, and then served, in float32.
    """
    generator = on_device(generator, config.device)
    memory = fitting_memory(config, generator)
    with reporting_memory(config.device):
        measured = profile(generator, memory, config.steps, config.device, config.threads, progress)
    cost = fit(measured.points, measured.swap)
    return Measured(configured_class(config), memory, tuple(measured.points), cost, generator.precision)


def fitting_memory(config: PackingFlowConfig, generator: Generator) -> Memory:
    """Return the memory to serve with, of as many pages as fit where the settings name no number.

    Raises `InputError` where it holds less than two tokens, and where more is required than the device has free.
    """
    free, weights = free_bytes(config.device), weight_bytes(generator)
    each, wanted = token_bytes(generator.config, generator.precision), config.memory
    pages = wanted.pages or 1
    if wanted.megabytes is not None:
        pages = int(wanted.megabytes * 2**20 // (each * wanted.page_tokens))
    elif wanted.pages is None:
        pages = max(pages_within(free, weights, each * wanted.page_tokens, config.device != "cpu"), 1)
    sequences = min(wanted.sequences, wanted.step_tokens)
    memory = Memory(pages, wanted.page_tokens, wanted.host_pages, wanted.step_tokens, sequences)
    if pages * memory.page_tokens < 2:
        raise InputError("memory", f"{pages} pages of {memory.page_tokens} tokens", "at least 2 tokens")
    memory = replace(memory, pages=min(pages, memory.need(generator.context) * sequences))
    check_fits(memory, each, weights, free, config.device)
    return memory


def weight_bytes(generator: Generator) -> int:
    return sum(array.nbytes for array in generator.weights.values())


def token_bytes(config: str, precision: str) -> int:
    """Return the bytes of one token's keys and values in all layers in `precision`; `config`: transformers' config.json.

    Raises `InputError` for a configuration that does not say how many heads and layers there are.
    """
    values, counts = json.loads(config), []
    for names in (
        ("num_hidden_layers", "n_layer", "num_layers"),
        ("num_attention_heads", "n_head", "num_heads"),
        ("hidden_size", "n_embd", "d_model"),
    ):
        value = next((values[name] for name in names if values.get(name)), None)
        if not isinstance(value, int):
            raise InputError("the generator's configuration", "incomplete", f"one that has {' or '.join(names)}")
        counts.append(value)
    layers, heads, width = counts
    each = int(values.get("head_dim") or width // heads)
    return 2 * layers * int(values.get("num_key_value_heads") or heads) * each * BYTES[precision]


def known_precision(config: PackingFlowConfig) -> str:
    """Return the precision that the generator will have, as far as that is known without measuring; else empty.

    Of "auto" it is known where the device lacks bfloat16, and on a GPU that has it.
    """
    if config.precision != "auto":
        return config.precision
    if not has_bfloat16(config.device):
        return DEFAULT
    return LOW if config.device.startswith("cuda") else ""


def converted(generator: Generator, config: PackingFlowConfig) -> tuple[Generator, dict[str, float]]:
    """Return the generator in the precision to serve it in, and the seconds by which that was chosen, if it was."""
    precision = known_precision(config)
    seconds: dict[str, float] = {}
    if not precision:
        precision, seconds = fastest(generator, (DEFAULT, LOW), config.lengths.sequences, config.threads)
    return in_precision(generator, precision), seconds


def on_device(generator: Generator, device: str) -> Generator:
    """Return the generator in the precision in which the device runs it: its own where the device has that natively."""
    return in_precision(generator, usable_precision(generator.precision, device))


LEAST = 10  # prompts of either part
PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts before any chat template. `fingerprint` identifies both parts."""

    name: str
    fit: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str
    repeats: Repeats | None = None  # among all that were to choose from


@dataclass(frozen=True, slots=True)
class Observed:
    """A stage's result alone. The first `fit` rows are to learn from, the others are held out. Shapes: R prompts."""

    KIND: ClassVar[str] = "packing-lengths"
    SCHEMA: ClassVar[int] = 1

    name: str
    prompts: tuple[str, ...]  # as a service has the predictor read them: without special tokens
    prompt_tokens: NDArray[np.int32]  # [R]
    output_tokens: NDArray[np.int32]  # [R] with the token that ended them
    limited: float  # share of the outputs that the limit ended
    fit: int
    data: str  # fingerprint of prompts and lengths

    def part(self, held_out: bool) -> LengthData:
        """Return the rows that the predictor is trained on, or judged by."""
        rows = slice(self.fit, None) if held_out else slice(0, self.fit)
        name, mark = ("held-out", "#held-out") if held_out else ("fit", "#fit")
        return LengthData(f"{self.name}-{name}", self.prompts[rows], self.output_tokens[rows], self.data + mark)


def select_prompts(config: PackingFlowConfig, corpus: Corpus | None) -> PromptSet:
    """Return as many different prompts as `lengths.requests` says, in random order.

    Raises `InputError` where there are too few.
    """
    lengths, rng = config.lengths, np.random.default_rng(config.seed)
    if config.prompts == CORPUS:
        if corpus is None:
            raise InputError("prompts", CORPUS, "an address of prompts, where there is no corpus")
        asks = {part: [turn.ask for turn in pliant.training.packing.corpus.select(corpus, part)] for part in PARTS}
        trained, texts = set(map(groups.key, asks["fit"])), (*asks["profiling"], *asks["test"])
        fit, held = (
            [text for text in _shuffled(asks[part], rng) if groups.key(text) not in trained]
            for part in ("profiling", "test")
        )
        name = CORPUS
    else:
        name, texts = pliant.training.packing.prompts.load(config.prompts, config.column)
        mixed = _shuffled(texts, rng)[: lengths.requests]
        count = round(lengths.held_out * len(mixed))
        held, fit = mixed[:count], mixed[count:]
    count = round(lengths.held_out * lengths.requests)
    fit = fit[: lengths.requests - count]
    known = {groups.key(text) for text in fit}
    held = [text for text in held if groups.key(text) not in known][:count]
    if min(len(fit), len(held)) < LEAST:
        raise InputError("prompts", f"{len(fit)} and {len(held)} held out", f"at least {LEAST} each")
    repeats = Repeats(len(texts), len(set(map(groups.key, texts))))
    return PromptSet(name, tuple(fit), tuple(held), _fingerprint(fit, held), repeats)


def _shuffled(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    distinct = [texts[row] for row in groups.firsts(groups.of_texts(texts))]
    return [distinct[at] for at in rng.permutation(len(distinct))]


def _fingerprint(*parts: Sequence[str]) -> str:
    mark = sha256()
    for part in parts:
        mark.update(b"\1")
        for text in part:
            mark.update(text.encode() + b"\0")
    return f"sha256:{mark.hexdigest()}"


def rendered(generator: Generator, tokenizer: Tokenizer, asks: Sequence[str]) -> list[str]:
    """Return the questions in the generator's template, or as they are where it has none.

    Raises `InputError` for a template that cannot be read or refuses a user's message.
    """
    try:
        template = template_of(generator, tokenizer)
        return [template.render([{"role": "user", "content": ask}]) for ask in asks]
    except (ArtifactError, InputError) as error:
        raise InputError("the generator's chat template", error, "one that takes a user's message") from error


def observe(
    generator: Generator,
    prompts: PromptSet,
    config: LengthsConfig,
    device: str,
    threads: int,
    seed: int,
    progress: Progress,
) -> Observed:
    """Run every prompt. Those that leave the generator no token of its context to answer with are left out.

    Raises `InputError` for more pages than the device has room for.
    """
    tokenizer = tokenizer_of(generator.tokenizer)
    texts, own = rendered(generator, tokenizer, (*prompts.fit, *prompts.held_out)), bool(generator.chat_template)
    encoded = [tuple(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=not own)]
    kept = [at for at, ids in enumerate(encoded) if 0 < len(ids) < generator.context]
    run = [encoded[at] for at in kept]
    pages = max(config.pages, -(-generator.context // PAGE_TOKENS))  # at least one sequence of the whole context
    memory = Memory(pages, PAGE_TOKENS, step_tokens=2 * config.sequences, sequences=config.sequences)
    check_fits(
        memory, token_bytes(generator.config, generator.precision), weight_bytes(generator), free_bytes(device), device
    )
    with reporting_memory(device):
        completions = complete(
            generator, run, memory, config.limit, config.temperature, seed, device, threads, progress
        )
    lengths = np.array([len(completion.tokens) for completion in completions], np.int32)
    fit = sum(at < len(prompts.fit) for at in kept)
    if min(fit, len(kept) - fit) < LEAST:
        wanted = f"at least {LEAST} of each part shorter than the context, {generator.context}"
        raise InputError("prompts", f"{fit} and {len(kept) - fit} held out", wanted)
    return Observed(
        prompts.name,
        tuple(tokenizer.decode_batch([list(ids) for ids in run], skip_special_tokens=True)),
        np.array([len(ids) for ids in run], np.int32),
        lengths,
        float(np.mean([completion.finished == "length" for completion in completions])),
        fit,
        f"sha256:{sha256(prompts.fingerprint.encode() + lengths.tobytes()).hexdigest()}",
    )


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
    read = partial(pliant.training.packing.predictor.read_encoder, max_length=config.predictor.max_length)
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


def make_lengths(
    config: PackingFlowConfig, generator: StageResult[Generator], prompts: PromptSet, progress: Progress
) -> tuple[Observed, Notes]:
    began = time.monotonic()
    observed = observe(generator.load(), prompts, config.lengths, config.device, config.threads, config.seed, progress)
    return observed, {
        "seconds": time.monotonic() - began,
        "requests": len(observed.output_tokens),
        "tokens": int(observed.output_tokens.sum()),
        "limited": observed.limited,
    }


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


def make_plan(
    config: PackingFlowConfig,
    generator: StageResult[Generator],
    lengths: StageResult[Observed],
    predictor: StageResult[Predictor],
    steps: StageResult[Measured],
    progress: Progress,
) -> tuple[Packing, Notes]:
    loaded, forecaster, measured, observed = generator.load(), predictor.load(), steps.load(), lengths.load()
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
        seconds=config.plan.seconds,
        precision=measured.precision,
        **requests_of(observed, forecaster),
    )
    planned, choice = finish(draft, loaded.context, config, progress)
    pace = measure_pace(forecaster, observed.part(held_out=True).prompts, planned, config.device)
    return planned, {"choice": asdict(choice), "pace": asdict(pace)}


def finish(draft: Packing, context: int, config: PackingFlowConfig, progress: Progress) -> tuple[Packing, Choice]:
    """Choose the sequences of an iteration, level and patience; return the finished plan and the choice."""
    allowed = min(config.memory.sequences, config.memory.step_tokens)
    best = best_batch(draft.steps, draft.prompt_tokens.tolist(), draft.output_tokens.tolist(), allowed)
    draft = replace(draft, memory=replace(draft.memory, sequences=best))
    choice = choose(draft, context, config.plan, config.reference, progress)
    return replace(draft, level=choice.level, patience=choice.patience), choice


def requests_of(observed: Observed, predictor: Predictor) -> dict[str, Any]:
    """Return what a plan's reference workload draws from: the requests held out, with the predictor's forecasts of them."""
    forecasts, buckets = forecasts_of(predictor, observed.part(held_out=True).prompts)
    tokens = {"prompt_tokens": observed.prompt_tokens, "output_tokens": observed.output_tokens}
    return {name: each[observed.fit :] for name, each in tokens.items()} | {"forecasts": forecasts, "buckets": buckets}


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
    lambda config, prompts: {"config": asdict(config.lengths), "prompts": prompts.fingerprint, "seed": config.seed},
    folder="packing/lengths-{config.name}",
    bar="{config.name}: lengths",
    measured=True,
)
PREDICTOR = Stage(
    "predictor",
    Predictor,
    make_predictor,
    lambda config: {"config": asdict(config.predictor), "name": config.name, "transformers": version("transformers")},
    folder="packing/predictor-{config.name}",
    bar="{config.name}: predictor",
)
STEPS = Stage(
    "steps",
    Measured,
    make_steps,
    lambda config: {"config": asdict(config.steps), "memory": asdict(config.memory), "device": _device(config)},
    folder="packing/steps-{config.name}",
    bar="{config.name}: step profile",
    code=(make_steps, MemoryConfig),
    measured=True,
    timed=True,
)
PLAN = Stage(
    "plan",
    Packing,
    make_plan,
    lambda config: {"plan": asdict(config.plan), "reference": asdict(config.reference), "name": config.name},
    folder="packing/plan-{config.name}",
    bar="{config.name}: plan",
    measured=True,
)


def generator_stage(config: PackingFlowConfig) -> Stage[Generator]:
    """Return the stage that makes the generator."""
    return UNTIMED_GENERATOR if config.generator == EMBEDDED and known_precision(config) else GENERATOR
