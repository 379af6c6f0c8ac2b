"""Chooses the engine that runs a model in this process: Pliant's own, or transformers' with its own scheduler."""

from __future__ import annotations

from typing import Any

from pliant.packing.engine.adapter import ContinuousBatchingEngine
from pliant.packing.engine.grammar import Grammars
from pliant.packing.engine.paged_engine import PagedEngine
from pliant.packing.engine.sampling import processors
from pliant.packing.engine.step import Executor
from pliant.packing.scheduling.request import Memory


def local_engine(
    model: Any, memory: Memory, sampling: bool = True, margin: float | None = None, grammars: Grammars | None = None
) -> Executor:
    """Return an engine that runs plans; with a `margin` transformers' scheduler decides and keeps that share of pages free.

    `sampling=False` always takes the likeliest token. Raises `InputError` for a memory or a model that it cannot use.
    """
    if margin is None:
        return PagedEngine(model, memory, sampling, grammars)
    vocabulary = int(model.config.get_text_config().vocab_size)
    return ContinuousBatchingEngine(model, memory, processors(vocabulary) if sampling else (), margin)
