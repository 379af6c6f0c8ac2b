"""Latency and memory of a backbone per (gamma, batch) on the device at hand, with all tasks mixed in each batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pliant.latency import LatencyTable
from pliant.profiling.timer import TimerConfig, Timing, measure
from pliant.progress import Progress, silent
from pliant.tokens.artifact import FLOAT32, GAMMAS, Backbone, Task
from pliant.tokens.points import BOTH, CLASS, kept
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

BATCH, ROUNDS = 16, 5
SMALL, SLOWEST = (1, 8), 1.03  # batches at which no point may take more than this, times gamma 0


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
    """Time `runtime.run` at every gamma, point and batch, on random pixels. The table has the runtime's buckets."""
    rng, settings = np.random.default_rng(0), (*config.gammas, *sorted(runtime.points))
    total = len(settings) * len(config.batches)
    table: dict[tuple[int, int], Timing] = {}
    for batch in config.batches:
        images = rng.integers(0, 256, (batch, image_size, image_size, 3), dtype=np.uint8)
        payloads = [Payload(tasks[i % len(tasks)], image) for i, image in enumerate(images)]
        for gamma in settings:
            table[gamma, batch] = measure(lambda g=gamma, p=payloads: runtime.run(g, p), config.timer, device)  # type: ignore[misc]
            progress(len(table), total)
    rows = [[table[gamma, batch] for batch in config.batches] for gamma in settings]
    # By ascending batch: none takes longer than a larger one, to which it could be padded; the rest is noise.
    least = [np.minimum.accumulate([t.median for t in reversed(row)])[::-1] for row in rows]
    medians = tuple(tuple(float(s) for s in row) for row in least)
    latency = LatencyTable(settings, config.batches, medians, runtime.buckets)
    return Measured(
        latency,
        tuple(tuple(t.spread for t in row) for row in rows),
        tuple(tuple(t.memory for t in row) for row in rows),
    )


def offered(
    runtime: TokensRuntime, tasks: Sequence[Task], image_size: int, largest: int, progress: Progress = silent
) -> list[int]:
    """Return the operating points that are worth offering on this device, by number (points.py, `kept`).

    `runtime`: with all points that the tasks share. Seconds are of a request in a batch of 16, or the largest; accuracies
    are those by which heads were chosen. What takes longer than gamma 0 in a small batch is not offered.
    """
    rng, numbers = np.random.default_rng(0), sorted(runtime.points)
    # Points that differ in what they read take as long, but for the class token alone.
    alike = {n: (replace(point, reads=BOTH), point.reads == CLASS) for n, point in runtime.points.items()}
    timed = [0, *{key: n for n, key in reversed(alike.items())}.values()]
    sizes, seconds = sorted({*SMALL, min(BATCH, largest)}), dict[tuple[int, int], float]()
    images = rng.integers(0, 256, (sizes[-1], image_size, image_size, 3), dtype=np.uint8)
    payloads = [Payload(tasks[i % len(tasks)].name, image) for i, image in enumerate(images)]
    for done, size in enumerate(sizes):
        samples = [[_seconds(runtime, setting, payloads[:size]) for setting in timed] for _ in range(ROUNDS + 1)][1:]
        seconds |= {(n, size): float(s) for n, s in zip(timed, np.median(samples, axis=0), strict=True)}
        progress(done + 1, len(sizes))
    same = {n: next(t for t in timed if t and alike[t] == alike[n]) for n in numbers}
    quick = [n for n in numbers if all(seconds[same[n], b] <= SLOWEST * seconds[0, b] for b in SMALL)]
    mean = {0: seconds[0, sizes[-1]], **{n: seconds[same[n], sizes[-1]] for n in quick}}
    return [number for number in kept(mean, [task.judged for task in tasks]) if number]


def _seconds(runtime: TokensRuntime, setting: int, payloads: Sequence[Payload]) -> float:
    start = time.perf_counter()
    runtime.run(setting, payloads)  # waits for the device
    return time.perf_counter() - start


def slowdown(backbone: Backbone, task: Task, half: str, device: str = "cpu") -> float:
    """Return the seconds of a batch at gamma 0 in the precision `half` over those in float32, median of rounds in turn."""
    full, other = (
        TokensRuntime(backbone, task.backbone, [task], device, Execution(precision=precision))
        for precision in (FLOAT32, half)
    )
    pixel_BHWC = np.random.default_rng(0).integers(0, 256, (BATCH, *[backbone.image_size] * 2, 3), dtype=np.uint8)
    payloads = [Payload(task.name, image) for image in pixel_BHWC]

    for runtime in (full, other):
        _seconds(runtime, 0, payloads)
    return float(np.median([_seconds(other, 0, payloads) / _seconds(full, 0, payloads) for _ in range(ROUNDS)]))
