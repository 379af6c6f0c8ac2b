"""Large models on data-centre accelerators: how many tokens fit into the cache, and how long an iteration takes.

All figures follow from published specifications; nothing here was measured. An iteration takes as long as the bytes
that it reads (all weights, and the keys and values of all cached tokens) or as the products of its queries with the
weights, whichever is longer (roofline). The feed-forward is batched and attention runs per sequence: Orca (OSDI 2022),
S3 section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.packing.scheduling.request import Memory

HALF = 2  # bytes of a number in half precision, of weights and of the cache


@dataclass(frozen=True, slots=True)
class LargeModel:
    """A decoder with full attention, in half precision. `parameters` counts all."""

    name: str
    layers: int
    hidden: int
    heads: int
    parameters: float

    @property
    def weight_bytes(self) -> float:
        return HALF * self.parameters

    @property
    def kv_bytes(self) -> int:
        """Bytes of the key and the value of one token in all layers."""
        return 2 * HALF * self.layers * self.hidden


GPT_J_6B = LargeModel("GPT-J 6B", 28, 4096, 16, 6.051e9)
LLAMA_13B = LargeModel("LLaMA-13B", 40, 5120, 40, 13.016e9)
GPT_NEOX_20B = LargeModel("GPT-NeoX 20B", 44, 6144, 64, 20.555e9)
LLAMA_33B = LargeModel("LLaMA-33B", 60, 6656, 52, 32.529e9)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device: `memory` in bytes; bytes/s from it (`bandwidth`) and to the host, one way.

    `flops` a second in half precision; `efficiency`: the share of them that products of some 100 rows reach (assumed).
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    host: float
    efficiency: float = 0.6


A100 = Accelerator("A100 80 GB", 80e9, 2.0e12, 312e12, 16e9)
"""Its host is connected by PCIe 4.0 x 8, as in S3's machine."""


def capacity(model: LargeModel, device: Accelerator) -> int:
    """Return the tokens whose keys and values fit beside the weights. Raises `InputError` if none does."""
    if model.weight_bytes + model.kv_bytes > device.memory:
        weights = f"enough for {model.name}'s {model.weight_bytes / 1e9:,.0f} GB of weights"
        raise InputError("devices", device.name, weights)
    return int((device.memory - model.weight_bytes) / model.kv_bytes)


def memory_of(
    model: LargeModel,
    device: Accelerator,
    *,
    page_tokens: int = 16,
    host_bytes: float = 0.0,
    step_tokens: int = 4096,
    sequences: int = 4096,
) -> Memory:
    """Return all memory that the weights leave, in pages. `host_bytes` are for preempted sequences.

    Raises `InputError` if not one token fits beside the weights.
    """
    pages = capacity(model, device) // page_tokens
    return Memory(pages, page_tokens, int(host_bytes / (model.kv_bytes * page_tokens)), step_tokens, sequences)


@dataclass(frozen=True, slots=True)
class Roofline:
    """An `IterationCost` from specifications."""

    model: LargeModel
    device: Accelerator

    def seconds(
        self, queries: NDArray[np.int64] | int, sequences: int, cached: NDArray[np.int64] | int
    ) -> NDArray[np.float64]:
        """Return the seconds in which every sequence gets a token."""
        del sequences
        read = (self.model.weight_bytes + self.model.kv_bytes * np.asarray(cached, float)) / self.device.bandwidth
        computed = 2 * self.model.parameters * np.asarray(queries, float) / (self.device.flops * self.device.efficiency)
        seconds: NDArray[np.float64] = np.maximum(read, computed)
        return seconds

    def swap_seconds(self, tokens: int) -> float:
        """Return the seconds of a swap."""
        return self.model.kv_bytes * tokens / self.device.host
