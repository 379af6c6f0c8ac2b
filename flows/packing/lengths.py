"""Which prompts a generator is asked, and how long its outputs to them are: run through the engine that serves.

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

import training.packing.corpus
import training.packing.prompts
from flows.packing.chat import rendered
from flows.packing.config import CORPUS, LengthsConfig, PackingFlowConfig
from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.complete import complete
from pliant.packing.engine.model import tokenizer_of
from pliant.packing.scheduling.request import Memory
from pliant.progress import Progress
from training.packing.corpus import Corpus
from training.packing.lengths import LengthData

LEAST = 10  # prompts of either part
PAGE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, before any chat template. `fingerprint` identifies both parts."""

    name: str
    fit: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str


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
        """What the predictor is trained on, or judged by."""
        rows = slice(self.fit, None) if held_out else slice(0, self.fit)
        name, mark = ("held-out", "#held-out") if held_out else ("fit", "#fit")
        return LengthData(f"{self.name}-{name}", self.prompts[rows], self.output_tokens[rows], self.data + mark)


def asked(config: PackingFlowConfig, corpus: Corpus | None) -> Asked:
    """As many as `lengths.requests` says, in random order. Raises `InputError` where there are too few."""
    told, rng = config.lengths, np.random.default_rng(config.seed)
    if config.prompts == CORPUS:
        if corpus is None:
            raise InputError("prompts", CORPUS, "an address of prompts, where there is no corpus")
        parts = [[turn.ask for turn in training.packing.corpus.select(corpus, part)] for part in ("profiling", "test")]
        name, (fit, held) = CORPUS, (_drawn(part, rng) for part in parts)
    else:
        name, texts = training.packing.prompts.load(config.prompts)
        mixed = _drawn(texts, rng)[: told.requests]
        count = round(told.held_out * len(mixed))
        held, fit = mixed[:count], mixed[count:]
    count = round(told.held_out * told.requests)
    fit = fit[: told.requests - count]
    known = set(fit)
    held = [text for text in held if text not in known][:count]
    if min(len(fit), len(held)) < LEAST:
        raise InputError("prompts", f"{len(fit)} and {len(held)} held out", f"at least {LEAST} each")
    return Asked(name, tuple(fit), tuple(held), _fingerprint(fit, held))


def _memory(config: LengthsConfig, generator: Generator) -> Memory:
    """At least one sequence of the whole context."""
    pages = max(config.pages, -(-generator.context // PAGE_TOKENS))
    return Memory(pages, PAGE_TOKENS, step_tokens=2 * config.sequences, sequences=config.sequences)


def _drawn(texts: Sequence[str], rng: np.random.Generator) -> list[str]:
    """In random order, each once."""
    distinct = list(dict.fromkeys(texts))
    return [distinct[at] for at in rng.permutation(len(distinct))]


def _fingerprint(*parts: Sequence[str]) -> str:
    mark = sha256()
    for part in parts:
        mark.update(b"\1")
        for text in part:
            mark.update(text.encode() + b"\0")
    return f"sha256:{mark.hexdigest()}"


def observe(
    generator: Generator, asked: Asked, config: LengthsConfig, device: str, threads: int, seed: int, progress: Progress
) -> Observed:
    """Run every prompt. Those that leave the generator no token of its context to answer with are left out."""
    tokenizer = tokenizer_of(generator.tokenizer)
    texts, own = rendered(generator, tokenizer, (*asked.fit, *asked.held_out)), bool(generator.chat_template)
    encoded = [tuple(one.ids) for one in tokenizer.encode_batch(texts, add_special_tokens=not own)]
    kept = [at for at, ids in enumerate(encoded) if 0 < len(ids) < generator.context]
    prompts = [encoded[at] for at in kept]
    made = complete(
        generator,
        prompts,
        _memory(config, generator),
        config.limit,
        config.temperature,
        seed,
        device,
        threads,
        progress,
    )
    lengths = np.array([len(one.tokens) for one in made], np.int32)
    fit = sum(at < len(asked.fit) for at in kept)
    if min(fit, len(kept) - fit) < LEAST:
        told = f"at least {LEAST} of each part shorter than the context, {generator.context}"
        raise InputError("prompts", f"{fit} and {len(kept) - fit} held out", told)
    return Observed(
        asked.name,
        tuple(tokenizer.decode_batch([list(ids) for ids in prompts], skip_special_tokens=True)),
        np.array([len(ids) for ids in prompts], np.int32),
        lengths,
        float(np.mean([one.finished == "length" for one in made])),
        fit,
        f"sha256:{sha256(asked.fingerprint.encode() + lengths.tobytes()).hexdigest()}",
    )
