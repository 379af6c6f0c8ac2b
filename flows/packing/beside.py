"""Measures two generators beside each other, each as its plan has it served: prompts read and continued in turns."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import numpy as np

from pliant.device import threads
from pliant.errors import DeviceError
from pliant.flows.beside import Beside, same_device
from pliant.flows.packing.config import PackingFlowConfig
from pliant.packing.artifact import Generator, Packing
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.scheduling.request import Chunk, Memory, StepPlan
from pliant.profiling.interleaved import BUDGET, interleave
from pliant.progress import Progress

Side = tuple[Generator, Packing]
BATCH, TOKENS = 8, 8  # sequences, and iterations after the one that reads their prompts


def beside(config: PackingFlowConfig, sides: tuple[Side, Side], progress: Progress, budget: float = BUDGET) -> Beside:
    """Return the ratio at a long prompt, at a typical one's continuation, and at a batch with as many tokens of prompts.

    `sides`: champion and challenger. Raises what an engine raises that cannot be opened or run.
    """
    (_, old), (_, new) = sides
    same_device(old.device_class, new.device_class)
    for plan in (old, new):
        if plan.engine != "pliant":
            raise DeviceError(f"a profile is of the engine {plan.engine}, which runs in a process of its own")
    most = max(1, min(min(generator.context - TOKENS - 1, plan.memory.step_tokens) for generator, plan in sides))
    batch = min(BATCH, most, old.memory.sequences, new.memory.sequences)
    middle, long = (int(np.clip(n, batch, most)) for n in np.quantile(new.prompt_tokens, [0.5, 0.9]))
    points = (1, long, 0), (1, middle, TOKENS), (batch, middle // batch, TOKENS)
    with threads(config.threads), ExitStack() as opened:
        engines = [_engine(*side, long + batch * TOKENS, config) for side in sides]
        for engine in engines:
            opened.callback(engine.close)
        calls = [[partial(_generate, engine, *point) for point in points] for engine in engines]
        return Beside(interleave(calls, config.device, progress, budget))


def _engine(generator: Generator, plan: Packing, tokens: int, config: PackingFlowConfig) -> PagedEngine:
    """Return an engine that has room for so many tokens."""
    memory = Memory(BATCH + 1 + tokens // plan.memory.page_tokens, plan.memory.page_tokens)
    engine = PagedEngine(load_generator(generator, config.device, plan.precision), memory)
    engine.enter(config.threads)
    return engine


def _generate(engine: PagedEngine, batch: int, prompt: int, tokens: int) -> None:
    """Read so many prompts in one iteration, and continue them in as many as there are tokens."""
    for id in range(batch):
        engine.add(id, [1] * prompt, tokens + 2)
    chunks = tuple(Chunk(id, prompt) for id in range(batch))
    for plan in (StepPlan(admitted=tuple(range(batch)), prefill_chunks=chunks), *[StepPlan()] * tokens):
        engine.carry_out(plan)
        engine.step()
    for id in range(batch):
        engine.cancel(id)
