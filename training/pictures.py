"""Pictures by index, from memory or decoded from the rows of a data set."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from pliant.models.image import MAX_PIXELS, decode, to_pixels

AUGMENTATIONS = ("jitter", "crops", "none")

Change = Callable[[Tensor], Tensor]
"""From pictures [B, C, H, W] to changed ones of the same shape."""

Index = NDArray[np.int64]
Pixels = NDArray[np.uint8]


class Images(Protocol):
    """Pictures by index, as the backbone sees them."""

    def __len__(self) -> int: ...

    def batch(self, index: Index, size: int) -> Pixels:
        """Return these pictures, uint8 [n, size, size, 3]."""

    def file(self, index: int) -> bytes:
        """Return the picture's file, as a client would send it."""


@dataclass(frozen=True, slots=True)
class ArrayImages:
    """Pictures held in memory, each uint8 [H, W] (grey) or [H, W, 3]; of one size as one array [N, ...]."""

    pixels: Pixels | Sequence[Pixels]

    def __len__(self) -> int:
        return len(self.pixels)

    def file(self, index: int) -> bytes:
        file = io.BytesIO()
        Image.fromarray(self.pixels[index]).save(file, "PNG")
        return file.getvalue()

    def batch(self, index: Index, size: int) -> Pixels:
        return np.stack([to_pixels(Image.fromarray(self.pixels[int(i)]), size) for i in index])


@dataclass(frozen=True, slots=True)
class FileImages:
    """Pictures decoded on demand. `read`: returns the file of each of so many."""

    count: int
    read: Callable[[int], bytes]

    def __len__(self) -> int:
        return self.count

    def file(self, index: int) -> bytes:
        return self.read(index)

    def batch(self, index: Index, size: int) -> Pixels:
        return np.stack([decode(self.read(int(i)), size, MAX_PIXELS) for i in index])


@dataclass(frozen=True, slots=True)
class JoinedImages:
    """The pictures of `first`, followed by those of `second`."""

    first: Images
    second: Images

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def file(self, index: int) -> bytes:
        before = len(self.first)
        return self.first.file(index) if index < before else self.second.file(index - before)

    def batch(self, index: Index, size: int) -> Pixels:
        before = len(self.first)
        pixels = np.empty((len(index), size, size, 3), np.uint8)
        for images, chosen, offset in ((self.first, index < before, 0), (self.second, index >= before, before)):
            if chosen.any():
                pixels[chosen] = images.batch(index[chosen] - offset, size)
        return pixels


class HeldImages:
    """Pictures that are decoded once per size and then kept, where all of them fit into `max_bytes`.

    Training reads a task's pictures once per epoch and gamma; decoding them each time would cost more than a small net
    does.
    """

    def __init__(self, images: Images, max_bytes: int = 2**30) -> None:
        self._images, self._max_bytes = images, max_bytes
        self._held: dict[int, tuple[Pixels, NDArray[np.bool_]]] = {}  # by size: pixels, and which of them are decoded

    def __len__(self) -> int:
        return len(self._images)

    def file(self, index: int) -> bytes:
        return self._images.file(index)

    def batch(self, index: Index, size: int) -> Pixels:
        if len(self) * size * size * 3 > self._max_bytes:
            return self._images.batch(index, size)
        if size not in self._held:
            self._held[size] = np.zeros((len(self), size, size, 3), np.uint8), np.zeros(len(self), np.bool_)
        pixels, decoded = self._held[size]
        lacking = np.unique(index[~decoded[index]])
        if len(lacking):
            pixels[lacking] = self._images.batch(lacking, size)
            decoded[lacking] = True
        return pixels[index]


def augmentation(name: str) -> Change:
    """Return the change of this name: "jitter" for drawings that must not be mirrored, "crops" for photographs, "none"."""
    match name:
        case "jitter":
            return jitter
        case "crops":
            return crops
    return lambda images_BCHW: images_BCHW


def jitter(images_BCHW: Tensor) -> Tensor:
    """Rotate, shift and scale each picture a little, at random."""
    count, device = len(images_BCHW), images_BCHW.device
    angle = (torch.rand(count, device=device) - 0.5) * 0.4
    scale = 1 + (torch.rand(count, device=device) - 0.5) * 0.2
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0] = theta[:, 1, 1] = scale * angle.cos()
    theta[:, 1, 0] = scale * angle.sin()
    theta[:, 0, 1] = -theta[:, 1, 0]
    theta[:, :, 2] = (torch.rand(count, 2, device=device) - 0.5) * 0.3
    grid = affine_grid(theta, list(images_BCHW.shape), align_corners=False)
    return grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)


def crops(images_BCHW: Tensor, min_share: float = 0.6) -> Tensor:
    """Take a random window of each picture, `min_share` to all of its sides, at full size; half are mirrored."""
    count, device = len(images_BCHW), images_BCHW.device
    side = min_share + (1 - min_share) * torch.rand(count, device=device)
    theta = torch.zeros(count, 2, 3, device=device)
    theta[:, 0, 0] = side * (torch.randint(2, (count,), device=device) * 2 - 1)
    theta[:, 1, 1] = side
    theta[:, :, 2] = (1 - side)[:, None] * (torch.rand(count, 2, device=device) * 2 - 1)
    grid = affine_grid(theta, list(images_BCHW.shape), align_corners=False)
    return grid_sample(images_BCHW, grid, padding_mode="border", align_corners=False)
