"""Chooses what runs an engine's plans: a model on one device, or one shared by several processes. Knows no policy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine import sampling as warps
from pliant.packing.engine.adapter import ContinuousBatchingEngine, StepResult
from pliant.packing.engine.model import load_generator, vocabulary
from pliant.packing.engine.swap_space import SwapSpace
from pliant.packing.scheduling.request import Memory, StepPlan


class Executor(Protocol):
    """The interface of `ContinuousBatchingEngine`, which describes it, and `ParallelExecutor`. Not thread-safe."""

    @property
    def scheduling(self) -> float: ...
    @property
    def running(self) -> int: ...
    @property
    def pages_used(self) -> int: ...
    @property
    def swap_space(self) -> SwapSpace: ...

    def pages_of(self, id: int) -> int: ...
    def enter(self, threads: int) -> None: ...
    def add(self, id: int, ids: Iterable[int], limit: int, ends: Iterable[int], sampling: dict[str, Any]) -> None: ...
    def cancel(self, id: int) -> None: ...
    def carry_out(self, plan: StepPlan) -> None: ...
    def step(self) -> StepResult: ...
    def close(self) -> None: ...
    def check(self) -> None: ...


def executor(
    generator: Generator, memory: Memory, sampling: bool, margin: float | None, device: str, processes: int
) -> Executor:
    """Load the model and return what runs plans on it. `margin` is the one of `ContinuousBatchingEngine`.

    `processes` above 1 share the model, each on a GPU of its own (the first ones) or all on the CPU. Raises
    `InputError` for a memory, a model or a number of processes that cannot be used, `WorkerError` if a process fails.
    """
    if processes < 1:
        raise InputError("processes", processes, "at least 1")
    if processes > 1:
        from pliant.packing.engine.parallel import ParallelExecutor  # loading it takes a second

        return ParallelExecutor(generator, memory, sampling, margin, processes=processes, device=device)
    processors = warps.processors(vocabulary(generator)) if sampling else ()
    return ContinuousBatchingEngine(load_generator(generator, device), memory, processors, margin)
