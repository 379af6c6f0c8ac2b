"""Small things that the tests of the packing benchmarks share: lengths with forecasts, a device, a plan."""

from __future__ import annotations

import numpy as np

from benchmarks.packing_forecasts import Foretold, foretold
from benchmarks.packing_study import Ground
from benchmarks.packing_traces import Lengths
from pliant.packing.artifact import Packing
from pliant.packing.request import Memory
from pliant.packing.steps import LinearSteps

STEPS = LinearSteps(0.01, 1e-5, 0.0, 1e-6, 0.0, 1e-6)
CONTEXT = 256


def lengths(count: int = 400, seed: int = 0) -> Lengths:
    """Prompts that say something of their outputs: longer ones are answered at greater length, give or take."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(4, 40, count)
    output = np.clip((prompt * np.exp(rng.normal(0, 0.5, count))).astype(np.int64), 1, 200)
    return Lengths("made up", prompt, output, np.empty(0))


def told(count: int = 400) -> Foretold:
    of = lengths(count)
    rows = np.arange(count)
    return foretold("made up", of.prompt.astype(float), of, rows[::2], rows[1::2], CONTEXT)


def ground(pages: int = 60, host_pages: int = 1000) -> Ground:
    """Few pages for many requests."""
    return Ground("tiny", Memory(pages, 16, host_pages, 512, 512), STEPS)


def packing(count: int = 200, pages: int = 60) -> Packing:
    of = told(2 * count)
    prompt, output = of.lengths.prompt.astype(np.int32), of.lengths.output.astype(np.int32)
    forecasts, buckets = of.forecasts_NL.astype(np.float32), of.buckets.astype(np.int32)
    memory = Memory(pages, 16, 100, 256, 64)
    return Packing("tiny", "", "", "cpu", memory, 64, STEPS, 1.0, 1.5, prompt, output, forecasts, buckets)
