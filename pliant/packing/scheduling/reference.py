"""What follows from a profile: the load that plans are judged by, and a policy's parameters, the largest batch above all.

The reference load goes from half to one and a half times a device's capacity, with observed prompts in random order. The
planning of a policy's parameters and the promotion gate both simulate it, so that all are judged by the same requests. A
stretch lasts for a number of requests, not of seconds, or a device of a hundredth of the time would get a hundred times as
many.

More sequences share an iteration's fixed cost, but the tokens of each cost the others time. Where an engine's attention
pairs every query with every cached token, an iteration's seconds grow with the square of the batch, so that beyond some
size a larger batch generates fewer tokens a second. Pliant's engine reads each sequence's own tokens alone: there the
memory is the limit, and this one does not bind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pliant.errors import InputError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import TURNOVER, Own, Rules
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.workload import Segment, stretches


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Arrival rates as shares of the capacity. Every quiet stretch is followed by a loud one, which is an overload."""

    quiet: tuple[float, ...] = (0.5, 0.8)
    loud: tuple[float, ...] = (1.2, 1.5)
    requests: int = 80  # that arrive in a stretch at a share of 1
    deadlines: bool = False  # whether requests expire `Packing.seconds` after their arrival, and may be dropped

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise InputError("reference.requests", self.requests, "at least 1")
        if not self.quiet or len(self.quiet) != len(self.loud) or min(*self.quiet, *self.loud) <= 0:
            limits = "equally many of each, at least one, above 0"
            raise InputError("reference.quiet and loud", (self.quiet, self.loud), limits)


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Prompts from time 0 on. `lengths`: id -> output tokens. `rows`: the observed request that each prompt repeats."""

    prompts: tuple[Prompt, ...]
    lengths: Mapping[int, int]
    rows: tuple[int, ...]
    segments: tuple[Segment, ...]


def capacity(packing: Packing) -> float:
    """Return the requests a second of one device whose memory is full of sequences, each half done on average.

    This is an upper estimate: nothing is preempted, and no page is kept free for tokens to come.
    """
    prompt, output = float(packing.prompt_tokens.mean()), float(packing.output_tokens.mean())
    memory, cost = packing.memory, packing.steps
    held = max(prompt + output / 2, 1.0)
    batch = int(min(max(memory.pages * memory.page_tokens / held, 1.0), memory.sequences, memory.step_tokens))
    alone = float(cost.seconds(1, 1, round(held)))
    reading = max(float(cost.seconds(1 + round(prompt), 1, round(held))) - alone, 0.0)
    return 1.0 / (output * float(cost.seconds(batch, batch, round(batch * held))) / batch + reading)


def reference_load(
    packing: Packing, context: int, capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Return Poisson arrivals at rates relative to `capacity` (requests/s), the stretches in random order.

    `context`: the most tokens of a prompt and its output together. The same seed, capacity and number of observed
    requests give the same arrivals of the same rows, whatever was forecast for them.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    segments, times = stretches(config.quiet, config.loud, capacity, config.requests / capacity, rng)
    rows = rng.integers(len(packing.output_tokens), size=len(times))
    seconds = packing.seconds if config.deadlines else FOREVER
    longest = min(context, packing.memory.pages * packing.memory.page_tokens)
    prompts = []
    for number, (at, row) in enumerate(zip(times.tolist(), rows.tolist(), strict=True)):
        tokens = min(int(packing.prompt_tokens[row]), longest - 1)
        exact = min(max(int(packing.output_tokens[row]), 1), longest - tokens)  # for the policy `oracle`
        forecast, bucket = tuple(packing.forecasts[row].tolist()), int(packing.buckets[row])
        prompts.append(
            Prompt(number, at, tokens, longest - tokens, forecast, bucket, deadline=at + seconds, exact=exact)
        )
    lengths = {prompt.id: prompt.exact for prompt in prompts}
    return ReferenceLoad(tuple(prompts), lengths, tuple(rows.tolist()), tuple(segments))


WORTH = 0.98  # share of the best rate that suffices: in a smaller batch each token comes sooner


def best_batch(cost: IterationCost, prompt_tokens: Sequence[int], output_tokens: Sequence[int], limit: int) -> int:
    """Return the smallest batch that generates WORTH of the most tokens a second that any batch up to `limit` does.

    `prompt_tokens` and `output_tokens` are of observed requests. On average a sequence holds its prompt and half of its
    output, and for every token that it generates it has read its share of a prompt.
    """
    prompts, outputs = np.asarray(prompt_tokens, float), np.asarray(output_tokens, float)
    held = float(((prompts + outputs / 2) * outputs).sum() / outputs.sum())  # weighted by how long each sequence runs
    prompt_share = float(prompts.sum() / outputs.sum())
    batches = np.arange(1, limit + 1)
    rates = np.array([n / float(cost.seconds(round(n * (1 + prompt_share)), int(n), round(n * held))) for n in batches])
    return int(batches[np.argmax(rates >= WORTH * rates.max())])


def rules_of(packing: Packing, context: int, policy: str | Own = "default", engine: str = "") -> Rules:
    """Return the rules by which this generator is scheduled, live and simulated; `context`: its most tokens.

    `engine`: that runs it; by default the one that it was measured with. Raises `InputError` for an unknown policy.
    """
    rules = Rules(policy, context, safety=packing.level, reorder_patience=packing.patience, cost=packing.steps)
    if (engine or packing.engine) != "vllm":
        return rules
    return replace(rules, preemption_target=0.0, turnover_preemptions=TURNOVER)
