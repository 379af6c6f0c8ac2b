"""Packing in the acceptance kit of GPUs: whose texts are right, and tokens/s by the number of sequences.

The model is a Llama with random weights, wide enough that the likeliest token stands clear of the next; the requests have
forced lengths of output with forecasts that err. All engines run in turns of an iteration (benchmarks/packing/turns.py).

On a GPU speeds are measured in bfloat16, in which one call attends for all sequences of an iteration; in float32 attention
goes sequence by sequence. Whether texts are those of plain `generate` is asked in float32, where the order of sums turns no
token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from pliant.benchmarks.packing.turns import Contender, Row, random_generator, serve
from pliant.benchmarks.results import Add, Target
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import in_precision, load_generator
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.forecast import QUANTILES
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt

OURS, THEIRS = "default", "transformers"
ERROR = 0.4  # standard deviation of the log of a forecast's error

SERVED = {"cuda": "bfloat16", "cpu": "float32"}
"""Device -> precision in which speeds are measured."""

MEMORY = Memory(pages=768, page_tokens=16, host_pages=1024, step_tokens=1024, sequences=128)


@dataclass(frozen=True, slots=True)
class Config:
    """`sequences`: most in one iteration, ascending. `memory`: few enough pages that paging preempts."""

    hidden: int = 1024
    layers: int = 12
    vocabulary: int = 8192
    context: int = 1024
    sequences: tuple[int, ...] = (12, 64, 128)
    requests: int = 256
    prompt: float = 64.0  # tokens, the median
    output: float = 96.0
    memory: Memory = MEMORY
    plain: int = 16  # requests that plain `generate` answers, too


FULL = Config()
TINY = Config(
    hidden=32,
    layers=2,
    vocabulary=64,
    context=96,
    sequences=(2, 8),
    requests=16,
    prompt=6.0,
    output=10.0,
    memory=Memory(pages=24, page_tokens=4, step_tokens=32, sequences=8),
    plain=6,
)


def measure(device: str, tiny: bool, add: Add) -> None:
    """Measure all parts on the device, and add each."""
    config = TINY if tiny else FULL
    heads = max(config.hidden // 64, 4)
    generator = random_generator(
        "random", config.context, vocab_size=config.vocabulary, hidden_size=config.hidden,
        intermediate_size=11 * config.hidden // 4, num_hidden_layers=config.layers, num_attention_heads=heads,
        num_key_value_heads=heads // 2, initializer_range=2.0 / config.hidden**0.5, tie_word_embeddings=False,
    )  # fmt: skip
    batch = submissions(config)
    add("texts", *_texts(config, generator, batch[: config.plain], device))
    add("sequences", *_by_sequences(config, in_precision(generator, SERVED[device]), batch, device))


def submissions(config: Config) -> list[Submission]:
    """Return the requests, which all arrive at once."""
    rng = np.random.default_rng(0)
    count, limit = config.requests, config.context // 2
    prompts, outputs = (
        np.clip(rng.lognormal(np.log(median), 0.7, count), 2, limit - 1).astype(int).tolist()
        for median in (config.prompt, config.output)
    )
    errors = np.exp(rng.normal(0, ERROR, count))
    spread = np.exp(ERROR * np.linspace(-1.6, 2.0, len(QUANTILES)))
    requests = []
    for number, (tokens, output) in enumerate(zip(prompts, outputs, strict=True)):
        ids = tuple(np.random.default_rng([number, 1]).integers(3, config.vocabulary, tokens).tolist())
        forecast = tuple(np.clip(output * errors[number] * spread, 1, limit).tolist())
        prompt = Prompt(number, 0.0, tokens, limit, forecast, limit, offline=True, exact=output)
        requests.append(Submission(prompt, ids, force=output))
    return requests


def _by_sequences(
    config: Config, generator: Generator, batch: Sequence[Submission], device: str
) -> tuple[list[Target], dict[str, Any]]:
    """Serve all at once with pages for everybody and so many sequences an iteration, in turns."""
    ample = replace(config.memory, pages=config.sequences[-1] * config.memory.need(config.context), host_pages=0)
    rules = Rules(OURS, config.context)
    contenders = [Contender(f"{count} sequences", rules, replace(ample, sequences=count)) for count in config.sequences]
    rows = serve("all at once", contenders, generator, batch, device)
    speed = [row.figures()["tokens/s"] for row in rows]
    name = f"tokens/s at {config.sequences[-1]} sequences over {config.sequences[0]}"
    targets = [Target(name, speed[-1] / speed[0], ">=", 1.0, "x")]
    targets.append(Target("greedy texts that differ with the sequences", _differing(rows), "<=", 0))
    return targets, _details(rows)


def _differing(rows: Sequence[Row]) -> int:
    """Return how many requests have not the same text from everybody."""
    return sum(len(set(answers)) > 1 for answers in zip(*(row.ran.texts for row in rows), strict=True))


def _details(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [{"contender": row.contender.name, **row.figures()} for row in rows]}


def _texts(
    config: Config, generator: Generator, requests: Sequence[Submission], device: str
) -> tuple[list[Target], dict[str, Any]]:
    """Serve a few requests at once in float32, and count the texts that are not everybody's and plain `generate`'s."""
    contenders = [Contender(OURS, Rules(OURS, config.context), config.memory), Contender(THEIRS, None, config.memory)]
    rows = serve("texts", contenders, generator, requests, device)
    plain = _generated(generator, requests, device)
    differing = _differing(rows) + sum(own != other for own, other in zip(rows[0].ran.texts, plain, strict=True))
    name = "float32: greedy texts that differ from each other or from generate"
    return [Target(name, differing, "<=", 0)], _details(rows)


def _generated(generator: Generator, requests: Sequence[Submission], device: str) -> list[tuple[int, ...]]:
    """Return the texts of plain `generate`, one after the other, on the device."""
    model, texts = load_generator(generator, device), []
    model.generation_config.eos_token_id = None
    for request in requests:
        ids = torch.tensor([request.ids], device=model.device)
        greedy = {"max_new_tokens": request.force, "do_sample": False, "pad_token_id": 0}
        output = model.generate(ids, attention_mask=torch.ones_like(ids), **greedy)
        texts.append(tuple(output[0, len(request.ids) :].tolist()))
    return texts
