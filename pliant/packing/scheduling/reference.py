"""The packing system's reference load: from half to one and a half times what a device can bear, observed prompts at random.

Used by the planning of a policy's parameters and by the promotion gate (in the simulator), so that all are judged by the
same requests. A stretch is told in requests, not in seconds: a device that takes a hundredth of the time would else be
asked a hundred times as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pliant.errors import InputError
from pliant.packing.artifact import Packing
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.workload import Segment, alternating, piecewise


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Shares are of the capacity; every quiet stretch is followed by a loud one, which asks more than can be done."""

    quiet: tuple[float, ...] = (0.5, 0.8)
    loud: tuple[float, ...] = (1.2, 1.5)
    requests: int = 80  # a stretch would have at the capacity
    deadlines: bool = (
        False  # whether a request is worth nothing `Packing.seconds` after its arrival, and may be dropped
    )

    def __post_init__(self) -> None:
        if self.requests < 1:
            raise InputError("reference.requests", self.requests, "at least 1")
        if not self.quiet or len(self.quiet) != len(self.loud) or min(*self.quiet, *self.loud) <= 0:
            told = "equally many of each, at least one, above 0"
            raise InputError("reference.quiet and loud", (self.quiet, self.loud), told)


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Prompts from time 0 on, the tokens that each will make by its id, and which observed request (row) each repeats."""

    prompts: tuple[Prompt, ...]
    lengths: Mapping[int, int]
    rows: tuple[int, ...]
    segments: tuple[Segment, ...]


def capacity(packing: Packing) -> float:
    """Requests a second of one device whose memory is full of sequences that are half done, on average.

    An estimate from above: nothing is preempted, and no page is kept for what is still to come.
    """
    prompt, output = float(packing.prompt_tokens.mean()), float(packing.output_tokens.mean())
    memory, steps = packing.memory, packing.steps
    held = max(prompt + output / 2, 1.0)
    batch = int(min(max(memory.pages * memory.page_tokens / held, 1.0), memory.sequences, memory.step_tokens))
    alone = float(steps.seconds(1, 1, round(held)))
    reading = max(float(steps.seconds(1 + round(prompt), 1, round(held))) - alone, 0.0)
    return 1.0 / (output * float(steps.seconds(batch, batch, round(batch * held))) / batch + reading)


def reference_load(
    packing: Packing, context: int, capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Poisson arrivals at rates relative to `capacity` (requests/s), loud stretches in random order.

    `context`: tokens of a prompt and its output together, at most. The same seed, capacity and number of observed
    requests give the same arrivals of the same rows, whatever was forecast for them.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    loud = [share * capacity for share in rng.permutation(config.loud)]
    quiet = [share * capacity for share in rng.permutation(config.quiet)]
    segments = alternating(quiet, loud, config.requests / capacity)
    times = piecewise(segments, rng)
    rows = rng.integers(len(packing.output_tokens), size=len(times))
    seconds = packing.seconds if config.deadlines else FOREVER
    most = min(context, packing.memory.pages * packing.memory.page_tokens)
    prompts = tuple(
        _prompt(packing, int(row), number, float(at), most, seconds)
        for number, (at, row) in enumerate(zip(times, rows, strict=True))
    )
    lengths = {one.id: one.exact for one in prompts}
    return ReferenceLoad(prompts, lengths, tuple(map(int, rows)), tuple(segments))


def _prompt(packing: Packing, row: int, number: int, arrival: float, most: int, seconds: float) -> Prompt:
    """With its exact length too, which the policy `oracle` alone looks at. `most`: tokens of prompt and output."""
    tokens = min(int(packing.prompt_tokens[row]), most - 1)
    limit = most - tokens
    return Prompt(
        number,
        arrival,
        tokens,
        limit,
        tuple(packing.forecasts[row].tolist()),
        int(packing.buckets[row]),
        deadline=arrival + seconds,
        exact=min(max(int(packing.output_tokens[row]), 1), limit),
    )
