"""Selects prompts and observes how long a generator's outputs to them are, in the engine that serves.

The predictor learns from the prompts to fit and is judged by those held out. Of the embedded corpus neither are of texts
that the generator was trained on: what it knows by heart it answers at another length. Knows no Prefect and no registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

import pliant.training.packing.corpus
import pliant.training.packing.prompts
from pliant.device import free_bytes, reporting_memory
from pliant.errors import ArtifactError, InputError
from pliant.flows.packing.config import CORPUS, LengthsConfig, PackingFlowConfig
from pliant.flows.packing.measure import token_bytes, weight_bytes
from pliant.packing.artifact import Generator
from pliant.packing.chat import template_of
from pliant.packing.engine.budget import check_fits
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import tokenizer_of
from pliant.packing.scheduling.request import Memory
from pliant.progress import Progress
from pliant.training import groups
from pliant.training.groups import Repeats
from pliant.training.packing.corpus import PARTS, Corpus
from pliant.training.packing.lengths import LengthData

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


def _memory(config: LengthsConfig, generator: Generator) -> Memory:
    """Return the memory that prompts are run with: at least one sequence of the whole context."""
    pages = max(config.pages, -(-generator.context // PAGE_TOKENS))
    return Memory(pages, PAGE_TOKENS, step_tokens=2 * config.sequences, sequences=config.sequences)


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
    memory = _memory(config, generator)
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
