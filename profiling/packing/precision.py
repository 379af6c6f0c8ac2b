"""Measures in which precision a generator makes tokens fastest on a processor. Off the processor nothing is measured.

What is timed is an iteration of the engine, as it is served, in which as many sequences generate as run at once, each with
some tokens in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from pliant.device import threads as with_threads
from pliant.packing.artifact import Generator
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan

WARMUP, REPEATS = 2, 9  # iterations of each precision; of the latter the median counts
CACHED, PAGE = 64, 16  # tokens of a sequence at first, where the context leaves room for them, and of a page
GAIN = 0.9  # of the first precision's seconds, which another one must not exceed to be chosen


def fastest(
    generator: Generator,
    precisions: Sequence[str],
    sequences: int,
    threads: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[str, dict[str, float]]:
    """Return the fastest of `precisions` on the CPU, and the seconds of each. The first one is kept unless it is beaten."""
    with with_threads(threads):
        engines = {precision: _filled(generator, precision, sequences, threads) for precision in precisions}
        taken: dict[str, list[float]] = {precision: [] for precision in precisions}
        for _ in range(WARMUP + REPEATS):  # in turns, so that whatever else runs slows all of them
            for precision, engine in engines.items():
                start = clock()
                engine.carry_out(StepPlan())
                engine.step()
                taken[precision].append(clock() - start)
        for engine in engines.values():
            engine.close()
    seconds = {precision: float(np.median(times[WARMUP:])) for precision, times in taken.items()}
    first = precisions[0]
    best = min(precisions, key=lambda precision: seconds[precision])
    return (best if seconds[best] <= GAIN * seconds[first] else first), seconds


def _filled(generator: Generator, precision: str, sequences: int, threads: int) -> PagedEngine:
    """Return an engine in which so many sequences generate."""
    passes = WARMUP + REPEATS + 1
    cached = max(min(CACHED, generator.context - passes), 1)
    memory = Memory(
        sequences * -(-(cached + passes) // PAGE), PAGE, step_tokens=max(sequences, cached), sequences=sequences
    )
    engine = PagedEngine(load_generator(generator, precision=precision), memory)
    engine.enter(threads)
    for id in range(sequences):
        engine.add(id, [1] * cached, passes)
        plan = StepPlan(admitted=(id,), prefill_chunks=(Chunk(id, cached),), stalled=tuple(range(id)))
        engine.carry_out(plan)
        engine.step()
    return engine
