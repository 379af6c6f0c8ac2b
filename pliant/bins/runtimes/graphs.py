"""Plain torch, and one captured CUDA graph per static shape, replayed over buffers that never move.

At batch 1 a GPU finishes BERT's kernels faster than Python launches them; a graph is one launch. Knows modules and
shapes, no artifact.

Shape suffixes: I inputs of the model, B texts, N tokens, K outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliant.bins.artifact import Shape
from pliant.bins.runtimes.padding import Batch
from pliant.models.graphs import Capture

Call = Callable[[Batch], NDArray[np.float32]]


class Model(Protocol):
    """A `HeadedEncoder`, or what `torch.compile` made of one."""

    def __call__(self, **inputs: Tensor) -> Tensor: ...


class EagerEngine:
    """Runs the module as it is, at any size: the reference, and the dynamic runtime of a GPU."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._model, self._device = model, device

    def open(self, shape: Shape) -> Call:
        del shape  # any is taken
        return self._call

    def _call(self, batch: Batch) -> NDArray[np.float32]:
        """Without padding it leaves the mask out: attention is faster so, and the model need not look whether it is."""
        told = {name: array for name, array in batch.items() if name != "attention_mask" or not array.all()}
        with torch.inference_mode():
            return to_host(
                self._model(**{name: torch.from_numpy(each).to(self._device) for name, each in told.items()})
            )


class GraphsEngine:
    """Graphs of one device share its memory, so they run one at a time; a dynamic shape runs eagerly.

    `open` raises `RuntimeError` for a model that cannot be captured: one that waits for the device or reads the host.
    """

    def __init__(self, model: Model, inputs: Sequence[str], device: torch.device, capture: Capture) -> None:
        self._model, self._inputs, self._device, self._capture = model, tuple(inputs), device, capture
        self._eager, self._turn = EagerEngine(model, device), threading.Lock()

    def open(self, shape: Shape) -> Call:
        """The call of one shape, captured now. Begin with the largest: the others fit into its memory."""
        if shape.dynamic:
            return self._in_turn(self._eager.open(shape))
        size = (len(self._inputs), shape.batch, shape.length)
        host_IBN = torch.ones(size, dtype=torch.long, pin_memory=self._device.type == "cuda")
        input_IBN = host_IBN.to(self._device)
        told = dict(zip(self._inputs, input_IBN.unbind(), strict=True))
        with torch.inference_mode():
            replay = self._capture(lambda: self._model(**told))

        def call(batch: Batch) -> NDArray[np.float32]:
            with torch.inference_mode():
                np.stack([batch[name] for name in self._inputs], out=host_IBN.numpy())
                input_IBN.copy_(host_IBN, non_blocking=True)
                return to_host(replay())

        return self._in_turn(call)

    def _in_turn(self, call: Call) -> Call:
        def one(batch: Batch) -> NDArray[np.float32]:
            with self._turn:
                return call(batch)

        return one


def to_host(output_BK: Tensor) -> NDArray[np.float32]:
    """A copy in float32, once the device is done."""
    copied_BK: NDArray[np.float32] = output_BK.float().cpu().numpy().copy()
    return copied_BK
