"""Copies a batch of images to the device.

Images are packed into pinned memory in chunks. While one chunk is packed, a second CUDA stream copies the one before:
packing 64 images of 224 x 224 takes about as long as their transfer. A batch can be sent ahead, by another thread, while
the batch before it runs: it waits in memory of its own on the device until it is loaded.

Shape suffixes: B rows of the buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 8  # images
AHEAD = 2  # batches: one that is loaded, and the next one


class _Waiting:
    """A place for a batch that was sent ahead, in pinned memory and on the device."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        cuda = device.type == "cuda"
        self.host_BHWC = torch.zeros(shape, dtype=torch.uint8, pin_memory=cuda)
        self.pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.images: tuple[NDArray[np.uint8], ...] = ()
        self.sent = torch.cuda.Event() if cuda else None  # recorded when the batch is on its way

    def holds(self, images: Sequence[NDArray[np.uint8]]) -> bool:
        return len(images) == len(self.images) and all(a is b for a, b in zip(images, self.images, strict=True))


class Staging:
    """Device buffers `pixel_BHWC` (uint8) and `task_B` (int64) at fixed addresses; a batch fills their first rows."""

    def __init__(self, rows: int, image_size: int, device: torch.device) -> None:
        cuda = device.type == "cuda"
        shape = (rows, image_size, image_size, 3)
        self.pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.task_B = torch.zeros(rows, dtype=torch.int64, device=device)
        self._pixel_BHWC = torch.zeros(shape, dtype=torch.uint8, pin_memory=cuda)
        self._task_B = torch.zeros(rows, dtype=torch.int64, pin_memory=cuda)
        self._device, self._side = device, torch.cuda.Stream(device) if cuda else None
        self._ahead = torch.cuda.Stream(device) if cuda else None
        self._waiting, self._turn = [_Waiting(shape, device) for _ in range(AHEAD)], 0

    def send(self, images: Sequence[NDArray[np.uint8]]) -> None:
        """Copy images to the device for a later `load` of the same arrays, beside what runs there; any thread may call it.

        At most one batch may be sent and not loaded yet while another one is being loaded.
        """
        waiting, self._turn = self._waiting[self._turn], (self._turn + 1) % AHEAD
        waiting.images = ()
        self._pack(images, waiting.host_BHWC, waiting.pixel_BHWC, self._ahead)
        if waiting.sent is not None:
            waiting.sent.record(self._ahead)
        waiting.images = tuple(images)

    def load(self, images: Sequence[NDArray[np.uint8]], tasks: Sequence[int]) -> None:
        """Copy images and the tasks' row numbers into the buffers, for work queued on the current stream afterwards.

        The batch before must have ended, as its pinned memory is used again.
        """
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        self._task_B[: len(tasks)] = torch.tensor(tasks)
        _copy(self._task_B, self.task_B, slice(0, len(tasks)), self._side)
        waiting = next((waiting for waiting in self._waiting if waiting.holds(images)), None)
        if waiting is None:
            self._pack(images, self._pixel_BHWC, self.pixel_BHWC, self._side)
        else:
            if waiting.sent is not None:
                torch.cuda.current_stream(self._device).wait_event(waiting.sent)
            self.pixel_BHWC[: len(images)].copy_(waiting.pixel_BHWC[: len(images)])
            waiting.images = ()
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)

    @staticmethod
    def _pack(
        images: Sequence[NDArray[np.uint8]], host_BHWC: Tensor, device_BHWC: Tensor, stream: torch.cuda.Stream | None
    ) -> None:
        packed_BHWC = host_BHWC.numpy()
        for start in range(0, len(images), CHUNK):
            part = slice(start, min(start + CHUNK, len(images)))
            np.stack(images[part], out=packed_BHWC[part])
            _copy(host_BHWC, device_BHWC, part, stream)


def _copy(host: Tensor, device: Tensor, part: slice, stream: torch.cuda.Stream | None) -> None:
    with torch.cuda.stream(stream) if stream is not None else nullcontext():
        device[part].copy_(host[part], non_blocking=True)
