"""Pictures by index, from memory or decoded from a data set's rows. Knows no labels and no splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pliant.models.image import to_pixels

Index = NDArray[np.int64]
Pixels = NDArray[np.uint8]


class Images(Protocol):
    """Pictures by index, as the backbone sees them."""

    def __len__(self) -> int: ...

    def batch(self, index: Index, size: int) -> Pixels:
        """uint8 [n, size, size, 3]."""

    def original(self, index: int) -> Image.Image:
        """The picture before resizing (what a client would send)."""


@dataclass(frozen=True, slots=True)
class ArrayImages:
    """Pictures held in memory, uint8 [N, H, W] (grey) or [N, H, W, 3]."""

    pixels: Pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def original(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def batch(self, index: Index, size: int) -> Pixels:
        return _stack(self, index, size)


@dataclass(frozen=True, slots=True)
class DatasetImages:
    """Pictures decoded on demand from a `datasets.Dataset`."""

    rows: Any
    column: str

    def __len__(self) -> int:
        return len(self.rows)

    def original(self, index: int) -> Image.Image:
        image: Image.Image = self.rows[int(index)][self.column]
        return image

    def batch(self, index: Index, size: int) -> Pixels:
        return _stack(self, index, size)


class HeldImages:
    """Pictures that are decoded once per size and then held as bytes, where all of them fit into `most` bytes.

    A task's pictures are looked at once per epoch and gamma; decoding them each time would cost more than a small net does.
    """

    def __init__(self, images: Images, most: int = 2**30) -> None:
        self._images, self._most = images, most
        self._held: dict[int, tuple[Pixels, NDArray[np.bool_]]] = {}  # by size: pixels, and which of them are there

    def __len__(self) -> int:
        return len(self._images)

    def original(self, index: int) -> Image.Image:
        return self._images.original(index)

    def batch(self, index: Index, size: int) -> Pixels:
        if len(self) * size * size * 3 > self._most:
            return self._images.batch(index, size)
        if size not in self._held:
            self._held[size] = np.zeros((len(self), size, size, 3), np.uint8), np.zeros(len(self), np.bool_)
        pixels, there = self._held[size]
        lacking = np.unique(index[~there[index]])
        if len(lacking):
            pixels[lacking] = self._images.batch(lacking, size)
            there[lacking] = True
        return pixels[index]


def _stack(images: Images, index: Index, size: int) -> Pixels:
    return np.stack([to_pixels(images.original(int(i)), size) for i in index])
