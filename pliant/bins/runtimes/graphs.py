"""Plain torch, and one captured CUDA graph per static shape, replayed over buffers at fixed addresses.

At batch 1 a GPU finishes BERT's kernels faster than Python launches them; a graph needs one launch.

Shape suffixes: I inputs of the model, B texts, N tokens, K outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pliant import fallbacks
from pliant.bins.artifact import Shape
from pliant.bins.runtimes.padding import Batch, size_text
from pliant.models.execution import Capture, reason_of

Call = Callable[[Batch], NDArray[np.float32]]
"""From a batch of a shape to its outputs [B, K]."""

Note = Callable[[str, str], None]
"""Takes what failed (see pliant/fallbacks.py) and a sentence about a shape that runs otherwise than planned."""


Model = Callable[..., Tensor]
"""A `HeadedEncoder`, or what `torch.compile` returns for one."""


class EagerEngine:
    """Runs the module as it is, at any size: the reference, and the dynamic runtime of a GPU."""

    def __init__(self, model: Model, device: torch.device) -> None:
        self._model, self._device = model, device

    def open(self, shape: Shape) -> Call:
        """Return the function that runs any shape."""
        del shape
        return self._call

    def open_tokens(self, shape: Shape) -> Call:
        """Return the function that gives the embeddings [B, N, H] of all tokens of a `HeadedEncoder`, at any shape."""
        del shape
        return self._call_tokens

    def _call(self, batch: Batch) -> NDArray[np.float32]:
        with torch.inference_mode():
            return to_host(self._model(**self._inputs(batch)))

    def _call_tokens(self, batch: Batch) -> NDArray[np.float32]:
        model: Any = self._model
        with torch.inference_mode():
            return to_host(model.with_tokens(**self._inputs(batch))[1])

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Leave out a mask without padding: attention is faster then, and the model need not check it."""
        inputs = {name: array for name, array in batch.items() if name != "attention_mask" or not array.all()}
        return {name: torch.from_numpy(array).to(self._device) for name, array in inputs.items()}


class GraphsEngine:
    """One graph per static shape; they share memory, so they run one at a time. A dynamic shape runs eagerly.

    So does a shape that cannot be captured, as of a model that waits for the device or reads the host. `note` is called
    with a sentence about it.
    """

    def __init__(
        self, model: Model, inputs: Sequence[str], device: torch.device, capture: Capture, note: Note = fallbacks.note
    ) -> None:
        self._model, self._inputs, self._device, self._capture = model, tuple(inputs), device, capture
        self._eager, self._turn, self._note = EagerEngine(model, device), threading.Lock(), note

    def open(self, shape: Shape) -> Call:
        """Capture the graph of one shape. Begin with the largest: the others fit into its memory."""
        if shape.dynamic:
            return self._in_turn(self._eager.open(shape))
        size = (len(self._inputs), shape.batch, shape.length)
        host_IBN = torch.ones(size, dtype=torch.long, pin_memory=self._device.type == "cuda")
        input_IBN = host_IBN.to(self._device)
        inputs = dict(zip(self._inputs, input_IBN.unbind(), strict=True))
        try:
            with torch.inference_mode():
                replay = self._capture(lambda: self._model(**inputs))
        except RuntimeError as error:
            self._note("capture", f"{size_text(shape)} runs without a CUDA graph ({reason_of(error)})")
            return self._in_turn(self._eager.open(shape))

        def call(batch: Batch) -> NDArray[np.float32]:
            with torch.inference_mode():
                np.stack([batch[name] for name in self._inputs], out=host_IBN.numpy())
                input_IBN.copy_(host_IBN, non_blocking=True)
                return to_host(replay())

        return self._in_turn(call)

    def open_tokens(self, shape: Shape) -> Call:
        """Return the function that gives the embeddings of all tokens. It runs eagerly, as few requests want them."""
        return self._in_turn(self._eager.open_tokens(shape))

    def _in_turn(self, call: Call) -> Call:
        return called_within(call, lambda: self._turn)


def called_within(call: Call, context: Callable[[], AbstractContextManager[object]]) -> Call:
    """Return the call, each time within a context."""

    def called(batch: Batch) -> NDArray[np.float32]:
        with context():
            return call(batch)

    return called


def to_host(output_BK: Tensor) -> NDArray[np.float32]:
    """Return a copy in float32, after the device has finished."""
    copied_BK: NDArray[np.float32] = output_BK.float().cpu().numpy().copy()
    return copied_BK
