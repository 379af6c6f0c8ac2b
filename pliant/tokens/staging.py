"""Copies a batch of images to the device.

Images are packed into pinned memory in chunks. While one chunk is packed, a second CUDA stream copies the one before:
packing 64 images of 224 x 224 takes about as long as their transfer.

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

    def load(self, images: Sequence[NDArray[np.uint8]], tasks: Sequence[int]) -> None:
        """Copy images and the tasks' row numbers into the buffers, for work queued on the current stream afterwards.

        The batch before must have ended, as its pinned memory is used again.
        """
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream(self._device))
        self._task_B[: len(tasks)] = torch.tensor(tasks)
        self._send(self._task_B, self.task_B, slice(0, len(tasks)))
        packed_BHWC = self._pixel_BHWC.numpy()
        for start in range(0, len(images), CHUNK):
            part = slice(start, min(start + CHUNK, len(images)))
            np.stack(images[part], out=packed_BHWC[part])
            self._send(self._pixel_BHWC, self.pixel_BHWC, part)
        if self._side is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._side)

    def _send(self, host: Tensor, device: Tensor, part: slice) -> None:
        with torch.cuda.stream(self._side) if self._side is not None else nullcontext():
            device[part].copy_(host[part], non_blocking=True)
