"""What iterations of a generator take on the device at hand, with the memory that it is served with.

Knows no Prefect and no registry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from flows.packing.config import MemoryConfig, PackingFlowConfig
from pliant.device import device_class, threads
from pliant.errors import InputError
from pliant.packing.artifact import Generator
from pliant.packing.scheduling.iteration_cost import LinearSteps, Point, fit
from pliant.packing.scheduling.request import Memory
from pliant.progress import Progress
from profiling.packing.steps import profile

FLOAT32 = 4
"""Bytes of a number in the cache: the engine's own, on every device."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A stage's result alone: iterations as they were measured, and their fit."""

    KIND: ClassVar[str] = "packing-steps"
    SCHEMA: ClassVar[int] = 1

    device: str  # device class
    memory: Memory
    points: tuple[Point, ...]
    steps: LinearSteps


def measure(config: PackingFlowConfig, generator: Generator, progress: Progress) -> Measured:
    """Iterations of the engine on the device, with the memory that is served with."""
    memory = memory_of(config.memory, generator, token_bytes(generator))
    found = profile(generator, memory, config.steps, config.device, config.threads, progress)
    return Measured(here(config), memory, tuple(found.points), fit(found.points, found.swap))


def token_bytes(generator: Generator) -> int:
    return kv_bytes(generator.config, FLOAT32)


def kv_bytes(config: str, element: int) -> int:
    """Of the keys and values of one token in all layers, by transformers' config.json; `element`: bytes of a number.

    Raises `InputError` for a configuration that does not say how many heads and layers there are.
    """
    told = json.loads(config)
    layers, heads, width = (
        _first(told, *names)
        for names in (
            ("num_hidden_layers", "n_layer", "num_layers"),
            ("num_attention_heads", "n_head", "num_heads"),
            ("hidden_size", "n_embd", "d_model"),
        )
    )
    each = int(told.get("head_dim") or width // heads)
    return 2 * layers * int(told.get("num_key_value_heads") or heads) * each * element


def _first(told: Mapping[str, object], *names: str) -> int:
    found = next((told[name] for name in names if told.get(name)), None)
    if not isinstance(found, int):
        raise InputError("the generator's configuration", "incomplete", f"one that has {' or '.join(names)}")
    return found


def memory_of(config: MemoryConfig, generator: Generator, bytes_: int) -> Memory:
    """`bytes_`: of one token's keys and values. Raises `InputError` where the memory holds no page."""
    pages = config.pages
    if config.megabytes is not None:
        pages = int(config.megabytes * 2**20 // (bytes_ * config.page_tokens))
    sequences = min(config.sequences, config.step_tokens)
    made = Memory(pages, config.page_tokens, config.host_pages, config.step_tokens, sequences)
    if made.pages * made.page_tokens < 2:
        raise InputError("memory", f"{made.pages} pages of {made.page_tokens} tokens", "at least 2 tokens")
    return replace(made, pages=min(made.pages, made.need(generator.context) * sequences))


def here(config: PackingFlowConfig) -> str:
    """The class of the configured device, with the configured threads."""
    with threads(config.threads):
        return device_class(config.device)
