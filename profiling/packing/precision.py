"""Measures in which precision a generator makes tokens fastest on a processor. Off the processor nothing is measured.

What is timed is the forward pass of as many tokens as sequences run at once, without a cache: its products with the
weights are most of an iteration, and the rest costs the same in every precision.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from pliant.device import threads as with_threads
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import load_generator

WARMUP, REPEATS = 2, 9  # passes of each precision; of the latter the median counts
GAIN = 0.9  # of the first precision's seconds, which another one must not exceed to be chosen


def fastest(
    generator: Generator,
    precisions: Sequence[str],
    sequences: int,
    threads: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[str, dict[str, float]]:
    """Return the fastest of `precisions` on the CPU, and the seconds of each. The first one is kept unless it is beaten."""
    with with_threads(threads), torch.inference_mode():
        models = {precision: load_generator(generator, precision=precision) for precision in precisions}
        taken: dict[str, list[float]] = {precision: [] for precision in precisions}
        for _ in range(WARMUP + REPEATS):  # in turns, so that whatever else runs slows all of them
            for precision, model in models.items():
                taken[precision].append(_seconds(model, sequences, clock))
    seconds = {precision: float(np.median(times[WARMUP:])) for precision, times in taken.items()}
    first = precisions[0]
    best = min(precisions, key=lambda precision: seconds[precision])
    return (best if seconds[best] <= GAIN * seconds[first] else first), seconds


def _seconds(model: Any, sequences: int, clock: Callable[[], float]) -> float:
    start = clock()
    model(torch.ones(sequences, 1, dtype=torch.long), use_cache=False)
    return clock() - start
