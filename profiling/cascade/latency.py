"""Latency of a level per (length, batch) on the device at hand, with or without attention importance."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from pliant.cascade.artifact import Bag
from pliant.cascade.bag import TOKENS, BagModel
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
    lengths = _lengths(config, (part.classifier if isinstance(part, Part) else part).max_length)
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


def profile_bag(bag: Bag, config: LatencyConfig, progress: Progress = silent) -> LatencyTable:
    """Measure the median seconds of a bag for one text at every length, of n-grams that it knows."""
    model, lengths = BagModel(bag), _lengths(config, bag.max_length)
    words = bag.grams[bag.grams < TOKENS]
    seconds_L1 = np.empty((len(lengths), 1))
    for row, length in enumerate(lengths):
        text = np.resize(words, length) if len(words) else np.zeros(length, np.int32), np.zeros(length, np.int8)
        seconds_L1[row] = measure(partial(model.logits, *text), config.timer, "cpu").median
        progress(row + 1, len(lengths))
    return LatencyTable(lengths, (1,), tuple((float(seconds),) for (seconds,) in monotonic(seconds_L1)))


def _lengths(config: LatencyConfig, most: int) -> tuple[int, ...]:
    return (*(length for length in config.lengths if length < most), most)
