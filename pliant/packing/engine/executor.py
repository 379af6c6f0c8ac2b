"""Chooses what runs an engine's plans: a model on one device, or one shared by several processes. Knows no policy."""

from __future__ import annotations

from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.local import local_engine
from pliant.packing.engine.model import load_generator
from pliant.packing.engine.step import Executor
from pliant.packing.scheduling.request import Memory


def executor(
    generator: Generator,
    memory: Memory,
    sampling: bool,
    margin: float | None,
    device: str,
    processes: int,
    grammars: Grammars | None = None,
) -> Executor:
    """Load the model and return what runs plans on it. `margin` is the one of `local_engine`.

    `processes` above 1 share the model, each on a GPU of its own (the first ones) or all on the CPU. Raises
    `InputError` for a memory, a model or a number of processes that cannot be used, `WorkerError` if a process fails.
    """
    if processes < 1:
        raise InputError("processes", processes, "at least 1")
    if processes > 1:
        from pliant.packing.engine.parallel import ParallelExecutor  # loading it takes a second

        return ParallelExecutor(generator, memory, sampling, margin, grammars, processes=processes, device=device)
    return local_engine(load_generator(generator, device), memory, sampling, margin, grammars)
