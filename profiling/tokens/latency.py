"""Latency and memory of a backbone per (gamma, batch) on the device at hand, with all tasks mixed in each batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pliant.latency import LatencyTable
from pliant.profiling.timer import TimerConfig, Timing, measure
from pliant.progress import Progress, silent
from pliant.tokens.artifact import FLOAT32, GAMMAS, Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

BATCH, ROUNDS = 16, 5


@dataclass(frozen=True, slots=True)
class LatencyConfig:
    gammas: tuple[int, ...] = GAMMAS
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    timer: TimerConfig = field(default_factory=TimerConfig)


@dataclass(frozen=True, slots=True)
class Measured:
    """Tables by [gamma][batch]: median seconds, spread in seconds, peak bytes."""

    latency: LatencyTable
    spread: tuple[tuple[float, ...], ...]
    memory: tuple[tuple[int, ...], ...]


def profile(
    runtime: TokensRuntime,
    tasks: Sequence[str],
    image_size: int,
    config: LatencyConfig,
    device: str = "cpu",
    progress: Progress = silent,
) -> Measured:
    """Time `runtime.run` at every gamma and batch, on random pixels. The table has the runtime's buckets."""
    rng = np.random.default_rng(0)
    total = len(config.gammas) * len(config.batches)
    table: dict[tuple[int, int], Timing] = {}
    for batch in config.batches:
        images = rng.integers(0, 256, (batch, image_size, image_size, 3), dtype=np.uint8)
        payloads = [Payload(tasks[i % len(tasks)], image) for i, image in enumerate(images)]
        for gamma in config.gammas:
            table[gamma, batch] = measure(lambda g=gamma, p=payloads: runtime.run(g, p), config.timer, device)  # type: ignore[misc]
            progress(len(table), total)
    rows = [[table[gamma, batch] for batch in config.batches] for gamma in config.gammas]
    # By ascending batch: none takes longer than a larger one, to which it could be padded; the rest is noise.
    least = [np.minimum.accumulate([t.median for t in reversed(row)])[::-1] for row in rows]
    medians = tuple(tuple(float(s) for s in row) for row in least)
    latency = LatencyTable(config.gammas, config.batches, medians, runtime.buckets)
    return Measured(
        latency,
        tuple(tuple(t.spread for t in row) for row in rows),
        tuple(tuple(t.memory for t in row) for row in rows),
    )


def slowdown(backbone: Backbone, task: Task, half: str, device: str = "cpu") -> float:
    """Return the seconds of a batch at gamma 0 in the precision `half` over those in float32, median of rounds in turn."""
    full, other = (
        TokensRuntime(backbone, task.backbone, [task], device, Execution(precision=precision))
        for precision in (FLOAT32, half)
    )
    pixel_BHWC = np.random.default_rng(0).integers(0, 256, (BATCH, *[backbone.image_size] * 2, 3), dtype=np.uint8)
    payloads = [Payload(task.name, image) for image in pixel_BHWC]

    def seconds(runtime: TokensRuntime) -> float:
        start = time.perf_counter()
        runtime.run(0, payloads)  # waits for the device
        return time.perf_counter() - start

    for runtime in (full, other):
        seconds(runtime)
    return float(np.median([seconds(other) / seconds(full) for _ in range(ROUNDS)]))
