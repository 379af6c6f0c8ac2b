"""Packing in the acceptance kit of GPUs: tokens/s by the number of sequences, and a contest with transformers' scheduler.

The model is a Llama with random weights, wide enough that the likeliest token stands clear of the next; the requests have
forced lengths of output with forecasts that err. All engines run at once, in turns of an iteration, each on a clock of its
own (benchmarks/packing/turns.py).

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
from pliant.packing.scheduling.iteration_cost import LinearCost, fit
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import best_batch
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.profiling.packing.steps import StepsConfig, profile

OURS, THEIRS = "default", "transformers"
OVERLOAD = 1.6  # arrivals over what transformers' scheduler serves at its best
ERROR = 0.4  # standard deviation of the log of a forecast's error

SERVED = {"cuda": "bfloat16", "cpu": "float32"}
"""Device -> precision in which speeds are measured."""

MEMORY = Memory(pages=768, page_tokens=16, host_pages=1024, step_tokens=1024, sequences=128)
STEPS = StepsConfig(sequences=(1, 16, 64, 128), fills=(0.1, 0.4), prompts=(0.0, 0.25))


@dataclass(frozen=True, slots=True)
class Config:
    """`sequences`: most in one iteration, ascending. `memory`: of the contest, few enough pages that paging preempts.

    `margins` and `batches`: of transformers' scheduler, of which the best setting is compared.
    """

    hidden: int = 1024
    layers: int = 12
    vocabulary: int = 8192
    context: int = 1024
    sequences: tuple[int, ...] = (12, 64, 128)
    requests: int = 256
    prompt: float = 64.0  # tokens, the median
    output: float = 96.0
    memory: Memory = MEMORY
    margins: tuple[float, ...] = (0.0, 0.15)
    batches: tuple[int, ...] = (32, 128)
    steps: StepsConfig = STEPS
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
    margins=(0.0,),
    batches=(8,),
    steps=StepsConfig(sequences=(1, 8), fills=(0.2,), prompts=(0.0, 0.5), warmup=2, repeats=9),
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
    batch = submissions(config, 0.0)
    add("texts", *_texts(config, generator, batch[: config.plain], device))
    generator = in_precision(generator, SERVED[device])
    add("sequences", *_by_sequences(config, generator, batch, device))
    steps = profile(generator, replace(config.memory, pages=8 * config.memory.pages), config.steps, device)
    cost = fit(steps.points, steps.swap)
    contenders = [_ours(config, cost, batch), *_theirs(config)]
    offline = serve("all at once", contenders, generator, batch, device)
    texts = Target("all at once: greedy texts that differ from each other", _differing(offline), "<=", 0)
    add("all at once", [_speed(offline, 1.5), texts], _details(offline))
    rate = OVERLOAD * len(batch) / min(row.ran.seconds for row in offline[1:])
    online = serve("Poisson overload", contenders, generator, submissions(config, rate), device)
    ours, *theirs = (row.figures()["mean s"] for row in online)
    waits = Target("Poisson overload: mean completion over transformers' best", ours / min(theirs), "<=", 0.5, "x")
    differ = Target("Poisson overload: greedy texts that differ", _differing([*online, *offline]), "<=", 0)
    add("Poisson", [_speed(online, 1.4), waits, differ], {"requests/s": rate, **_details(online)})


def submissions(config: Config, rate: float) -> list[Submission]:
    """Return the same requests for every rate: at Poisson arrivals of `rate` a second, or all at 0 where it is 0."""
    rng = np.random.default_rng(0)
    count, limit = config.requests, config.context // 2
    prompts, outputs = (
        np.clip(rng.lognormal(np.log(median), 0.7, count), 2, limit - 1).astype(int).tolist()
        for median in (config.prompt, config.output)
    )
    errors = np.exp(rng.normal(0, ERROR, count))
    spread = np.exp(ERROR * np.linspace(-1.6, 2.0, len(QUANTILES)))
    arrivals = np.cumsum(rng.exponential(1 / rate, count)) if rate else np.zeros(count)
    requests = []
    for number, (tokens, output) in enumerate(zip(prompts, outputs, strict=True)):
        ids = tuple(np.random.default_rng([number, 1]).integers(3, config.vocabulary, tokens).tolist())
        forecast = tuple(np.clip(output * errors[number] * spread, 1, limit).tolist())
        prompt = Prompt(number, float(arrivals[number]), tokens, limit, forecast, limit, offline=not rate, exact=output)
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
    name = f"tokens/s at {config.sequences[-1]} sequences over {config.sequences[0]}"
    targets = [Target(name, _tokens(rows[-1]) / _tokens(rows[0]), ">=", 1.0, "x")]
    targets.append(Target("greedy texts that differ with the sequences", _differing(rows), "<=", 0))
    return targets, _details(rows)


def _ours(config: Config, cost: LinearCost, batch: Sequence[Submission]) -> Contender:
    """Return our scheduler as a flow would set it, by the iterations that were measured here."""
    prompts = [submission.prompt for submission in batch]
    most = best_batch(cost, [p.tokens for p in prompts], [p.exact for p in prompts], config.memory.sequences)
    rules = Rules(OURS, config.context, cost=cost)
    return Contender(f"{OURS}, {most} sequences", rules, replace(config.memory, sequences=most))


def _theirs(config: Config) -> list[Contender]:
    return [
        Contender(
            f"{THEIRS}, margin {margin:g}, {count} sequences", None, replace(config.memory, sequences=count), margin
        )
        for margin in config.margins
        for count in config.batches
    ]


def _tokens(row: Row) -> float:
    return row.figures()["tokens/s"]


def _speed(rows: Sequence[Row], limit: float) -> Target:
    """Compare the first contender's tokens/s with the best of the others."""
    ours, *theirs = map(_tokens, rows)
    return Target(f"{rows[0].load}: tokens/s over transformers' best", ours / max(theirs), ">=", limit, "x")


def _differing(rows: Sequence[Row]) -> int:
    """Return how many requests have not the same text from everybody."""
    return sum(len(set(answers)) > 1 for answers in zip(*(row.ran.texts for row in rows), strict=True))


def _details(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": [{"contender": row.contender.name, **row.figures()} for row in rows]}


def _texts(
    config: Config, generator: Generator, requests: Sequence[Submission], device: str
) -> tuple[list[Target], dict[str, Any]]:
    """Serve a few requests at once in float32, and count the texts that are not everybody's and plain `generate`'s."""
    contenders = [Contender(OURS, Rules(OURS, config.context), config.memory), _theirs(config)[0]]
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
