"""Measures a generator's iterations on the device at hand, with the memory and in the precision that it is served with.

Knows no Prefect and no registry.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pliant.device import free_bytes, reporting_memory
from pliant.errors import InputError
from pliant.flows.device import configured_class
from pliant.flows.packing.config import MemoryConfig, PackingFlowConfig
from pliant.packing.artifact import Generator
from pliant.packing.engine.budget import check_fits, pages_within
from pliant.packing.engine.model import in_precision
from pliant.packing.scheduling.iteration_cost import LinearCost, Point, fit
from pliant.packing.scheduling.request import Memory
from pliant.precision import has_bfloat16, usable_precision
from pliant.profiling.packing.precision import fastest
from pliant.profiling.packing.steps import profile
from pliant.progress import Progress

DEFAULT, LOW = "float32", "bfloat16"
BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of a number in each precision: the cache has the model's."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A stage's result alone: iterations as they were measured, and their fit."""

    KIND: ClassVar[str] = "packing-steps"
    SCHEMA: ClassVar[int] = 1

    device: str  # device class
    memory: Memory
    points: tuple[Point, ...]
    steps: LinearCost
    precision: str = "float32"  # in which the generator ran
    engine: str = "pliant"  # that ran it


Measure = Callable[[PackingFlowConfig, Generator, Progress], Measured]
"""Measures a generator as `measure` does, by an engine of its own."""


def measure(config: PackingFlowConfig, generator: Generator, progress: Progress) -> Measured:
    """Measure iterations of the engine on the device, with the memory that is served with.

    A generator whose precision the device lacks is measured, and then served, in float32.
    """
    generator = on_device(generator, config.device)
    memory = fitting_memory(config, generator)
    with reporting_memory(config.device):
        measured = profile(generator, memory, config.steps, config.device, config.threads, progress)
    cost = fit(measured.points, measured.swap)
    return Measured(configured_class(config), memory, tuple(measured.points), cost, generator.precision)


def fitting_memory(config: PackingFlowConfig, generator: Generator) -> Memory:
    """Return the memory to serve with, of as many pages as fit where the settings name no number.

    Raises `InputError` where more is required than the device has free, and as `memory_of`.
    """
    free, weights = free_bytes(config.device), weight_bytes(generator)
    each = token_bytes(generator.config, generator.precision)
    wanted = config.memory
    if wanted.follows_device:
        fitting = pages_within(free, weights, each * wanted.page_tokens, config.device != "cpu")
        wanted = replace(wanted, pages=max(fitting, 1))
    memory = memory_of(wanted, generator, each)
    check_fits(memory, each, weights, free, config.device)
    return memory


def weight_bytes(generator: Generator) -> int:
    return sum(array.nbytes for array in generator.weights.values())


def token_bytes(config: str, precision: str) -> int:
    """Return the bytes of one token's keys and values in `precision`; `config` is transformers' config.json."""
    return kv_bytes(config, BYTES[precision])


def kv_bytes(config: str, element: int) -> int:
    """Return the bytes of one token's keys and values in all layers; `element`: bytes of a number.

    `config` is transformers' config.json.

    Raises `InputError` for a configuration that does not say how many heads and layers there are.
    """
    values = json.loads(config)
    layers, heads, width = (
        _first(values, *names)
        for names in (
            ("num_hidden_layers", "n_layer", "num_layers"),
            ("num_attention_heads", "n_head", "num_heads"),
            ("hidden_size", "n_embd", "d_model"),
        )
    )
    each = int(values.get("head_dim") or width // heads)
    return 2 * layers * int(values.get("num_key_value_heads") or heads) * each * element


def _first(values: Mapping[str, object], *names: str) -> int:
    value = next((values[name] for name in names if values.get(name)), None)
    if not isinstance(value, int):
        raise InputError("the generator's configuration", "incomplete", f"one that has {' or '.join(names)}")
    return value


def memory_of(config: MemoryConfig, generator: Generator, token_bytes: int) -> Memory:
    """Return the memory to serve with; `token_bytes`: of one token's keys and values.

    Raises `InputError` where the memory holds no page.
    """
    pages = config.pages or 1
    if config.megabytes is not None:
        pages = int(config.megabytes * 2**20 // (token_bytes * config.page_tokens))
    sequences = min(config.sequences, config.step_tokens)
    memory = Memory(pages, config.page_tokens, config.host_pages, config.step_tokens, sequences)
    if memory.pages * memory.page_tokens < 2:
        raise InputError("memory", f"{memory.pages} pages of {memory.page_tokens} tokens", "at least 2 tokens")
    return replace(memory, pages=min(memory.pages, memory.need(generator.context) * sequences))


def known_precision(config: PackingFlowConfig) -> str:
    """Return the precision that the generator will have, as far as that is known without measuring; else empty.

    Of "auto" it is known where the device lacks bfloat16, and on a GPU that has it.
    """
    if config.precision != "auto":
        return config.precision
    if not has_bfloat16(config.device):
        return DEFAULT
    return LOW if config.device.startswith("cuda") else ""


def converted(generator: Generator, config: PackingFlowConfig) -> tuple[Generator, dict[str, float]]:
    """Return the generator in the precision to serve it in, and the seconds by which that was chosen, if it was."""
    precision = known_precision(config)
    seconds: dict[str, float] = {}
    if not precision:
        precision, seconds = fastest(generator, (DEFAULT, LOW), config.lengths.sequences, config.threads)
    return in_precision(generator, precision), seconds


def on_device(generator: Generator, device: str) -> Generator:
    """Return the generator in the precision in which the device runs it: its own where the device has that natively."""
    return in_precision(generator, usable_precision(generator.precision, device))
