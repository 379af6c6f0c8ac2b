"""The latency staircase of an encoder on the device at hand: seconds of static shapes, and of the dynamic runtime.

All points are measured in turns, round after round, so that whatever slows the machine for a while slows all alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Encoder, Shape
from pliant.bins.runtimes.padding import Payload
from pliant.bins.runtimes.runtime import BinsRuntime
from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.precision import FLOAT32
from pliant.profiling.timer import check_ascending, monotonic
from pliant.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class LatencyConfig:
    """`lengths` in tokens: those below the encoder's `max_length` are candidates, and that one; each at all `batches`."""

    lengths: tuple[int, ...] = (16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512)
    batches: tuple[int, ...] = (1, 2, 4, 8)
    warmup: int = 1  # rounds
    repeats: int = 9  # rounds after those
    least: int = 3  # rounds of a point that takes long
    budget: float = 1.0  # seconds of a point, once `least` is reached

    def __post_init__(self) -> None:
        check_ascending(lengths=self.lengths, batches=self.batches)
        if not 1 <= self.least <= self.repeats or self.warmup < 0:
            raise InputError(
                "least, repeats and warmup", (self.least, self.repeats, self.warmup), "1 <= least <= repeats"
            )

    def within(self, max_length: int) -> tuple[int, ...]:
        """Return the candidates for an encoder that reads `max_length` tokens."""
        return (*(n for n in self.lengths if n < max_length), max_length)


@dataclass(frozen=True, slots=True)
class Measured:
    """Median seconds of a launch, whatever it holds (static), and filled with texts of one length (dynamic).

    Both rise with length and batch: what takes longer than something larger, to which it could be padded, is noise.
    """

    static: Mapping[Shape, float]
    dynamic: LatencyTable
    fallbacks: tuple[str, ...] = ()  # what ran otherwise than the engine says, as that has failed: a sentence each


def profile(
    encoder: Encoder,
    engine: str,
    folder: Path,
    files: Mapping[str, str],
    config: LatencyConfig = LatencyConfig(),
    device: str = "cpu",
    threads: int = 1,
    progress: Progress = silent,
    clock: Callable[[], float] = time.perf_counter,
    precision: str = FLOAT32,
) -> Measured:
    """Measure `BinsRuntime.run` of every candidate, by the compiled `files` in `folder`, where the engine has any."""
    lengths = config.within(encoder.max_length)
    static = [Shape(length, batch) for length in lengths for batch in config.batches]
    shapes = (*static, Shape(lengths[-1], config.batches[-1], dynamic=True))
    runtime = BinsRuntime(encoder, shapes, engine, folder, files, device, threads, precision=precision)
    calls = [
        *(_call(runtime, number, shape, full=False) for number, shape in enumerate(static)),
        *(_call(runtime, len(static), shape, full=True) for shape in static),
    ]
    medians = in_turns(calls, config, progress, clock)
    static_LB, dynamic_LB = map(monotonic, medians.reshape(2, len(lengths), len(config.batches)))
    rows = tuple(tuple(float(s) for s in row) for row in dynamic_LB)
    seconds = {shape: float(s) for shape, s in zip(static, static_LB.ravel(), strict=True)}
    return Measured(seconds, LatencyTable(lengths, config.batches, rows), runtime.fallbacks)


def in_turns(
    calls: list[Callable[[], object]], config: LatencyConfig, progress: Progress, clock: Callable[[], float]
) -> NDArray[np.float64]:
    """Return the median seconds of each call, each run once a round until its budget of seconds is spent."""
    samples: list[list[float]] = [[] for _ in calls]
    for number in range(config.warmup + config.repeats):
        for call, taken in zip(calls, samples, strict=True):
            if number < config.warmup + config.least or sum(taken) < config.budget:
                start = clock()
                call()
                taken.extend([clock() - start] if number >= config.warmup else [])
        progress(number + 1, config.warmup + config.repeats)
    return np.array([np.median(taken) for taken in samples])


def _call(runtime: BinsRuntime, setting: int, shape: Shape, full: bool) -> Callable[[], object]:
    """Return a launch of the same token over and over; unless `full`, one text is a token shorter, for some padding."""
    lengths = [shape.length] * shape.batch
    if not full:
        lengths[-1] = max(1, shape.length - 1)
    payloads: list[Payload] = [(np.ones(n, dtype=np.int32), np.zeros(n, dtype=np.int8)) for n in lengths]
    return lambda: runtime.run(setting, payloads)
