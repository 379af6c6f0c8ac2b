"""Latency of a level per (length, batch) on the device at hand, with or without attention importance."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pliant.cascade.runtime import CascadeRuntime, Execution, Part, Payload
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier
from pliant.profiling.timer import TimerConfig, check_ascending, measure, monotonic
from pliant.progress import Progress, silent


@dataclass(frozen=True, slots=True)
class LatencyConfig:
    """`lengths` in tokens: those below the classifier's `max_length` are measured, and that one."""

    lengths: tuple[int, ...] = (8, 16, 32, 64, 128, 256, 512)
    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    timer: TimerConfig = field(default_factory=TimerConfig)
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        check_ascending(lengths=self.lengths, batches=self.batches)


def profile(
    part: Part | Classifier,
    config: LatencyConfig,
    device: str = "cpu",
    progress: Progress = silent,
    importance: bool = False,
) -> LatencyTable:
    """Measure the median seconds of `CascadeRuntime.run` at every length and batch, on one token over and over, unpadded.

    Of a part behind an exit only what remains is timed: before each call the exit's layers run and leave their states.
    Made monotonic: no length and no batch takes longer than a larger one, to which it could be padded; the rest is noise.
    """
    runtime = CascadeRuntime({0: part}, device, config.execution)
    most = (part.classifier if isinstance(part, Part) else part).max_length
    lengths = (*(n for n in config.lengths if n < most), most)
    seconds_LB = np.empty((len(lengths), len(config.batches)))
    for row, length in enumerate(lengths):
        payload: Payload = (np.ones(length, dtype=np.int32), np.zeros(length, dtype=np.int8))
        for column, batch in enumerate(config.batches):
            payloads = [payload] * batch
            timing = measure(
                partial(runtime.run, 0, payloads, importance),
                config.timer,
                device,
                prepare=partial(runtime.advance, 0, payloads),
            )
            seconds_LB[row, column] = timing.median
            progress(row * len(config.batches) + column + 1, seconds_LB.size)
    rows = tuple(tuple(float(s) for s in row) for row in monotonic(seconds_LB))
    return LatencyTable(lengths, config.batches, rows)
