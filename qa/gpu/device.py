"""Captures of graphs on a device. On a CPU nothing is captured: a call stands for its graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pliant.models.execution import Capture, CudaCapture


def capture_on(device: str) -> Capture:
    """CUDA's graphs on a GPU, and the call itself on a CPU."""
    return CudaCapture(torch.device(device)) if device == "cuda" else lambda call: call


class SpoiltCapture:
    """Captures as the device does, but what it captures as number `spoilt` (from 0 on) waits for the device.

    A GPU does not let a graph wait for the device, and so the capture fails as CUDA's own do. On a CPU it is said to fail.
    """

    def __init__(self, device: str, spoilt: int) -> None:
        self._device, self._capture, self._left = device, capture_on(device), spoilt

    def __call__(self, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        self._left -= 1
        if self._left != -1:
            return self._capture(call)
        if self._device == "cpu":
            raise RuntimeError("operation not permitted when stream is capturing")

        def waiting() -> Tensor:
            out = call()
            out.sum().item()
            return out

        return self._capture(waiting)


def stream_of(device: str) -> object:
    """Return what a thread's next work on the device goes to; a failed capture must put it back."""
    return torch.cuda.current_stream() if device == "cuda" else None
