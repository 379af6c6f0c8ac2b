"""How the flow would run a generator on this machine: its iterations measured, level and patience chosen by replay.

What it replays are requests of its own, none of those that are measured afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flows.packing.config import PlanConfig
from flows.packing.plan import choose
from pliant.packing.artifact import Generator, Packing
from pliant.packing.engine.submission import Submission
from pliant.packing.scheduling.iteration_cost import LinearCost, fit
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.packing.scheduling.request import Memory
from profiling.packing.steps import StepsConfig, profile

STEPS = StepsConfig(sequences=(1, 4, 12), fills=(0.05, 0.2), prompts=(0.0, 0.1, 0.5))
ROOM = 16  # times the pages, while iterations are measured: how long they take depends on what is in use


def steps_of(generator: Generator, memory: Memory, device: str) -> LinearCost:
    """Measure the iterations of one thread."""
    measured = profile(generator, replace(memory, pages=ROOM * memory.pages), STEPS, device)
    return fit(measured.points, measured.swap)


def planned(generator: Generator, memory: Memory, steps: LinearCost, submissions: Sequence[Submission]) -> Packing:
    """Plan by a replay of requests with forced outputs."""
    prompts = [submission.prompt for submission in submissions]
    draft = Packing(
        name=generator.name,
        generator="",
        predictor="",
        device_class="",
        memory=memory,
        kv_bytes=0,
        steps=steps,
        level=0.0,
        patience=0.0,
        prompt_tokens=np.array([prompt.tokens for prompt in prompts], np.int32),
        output_tokens=np.array([prompt.exact for prompt in prompts], np.int32),
        forecasts=np.array([prompt.forecast for prompt in prompts], np.float32),
        buckets=np.array([prompt.bucket for prompt in prompts], np.int32),
    )
    choice = choose(draft, generator.context, PlanConfig(), ReferenceConfig())
    return replace(draft, level=choice.level, patience=choice.patience)
