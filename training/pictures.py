"""Pictures by index, from memory or decoded from the rows of a data set."""

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
        """Return these pictures, uint8 [n, size, size, 3]."""

    def original(self, index: int) -> Image.Image:
        """Return the picture before resizing, as a client would send it."""


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


@dataclass(frozen=True, slots=True)
class ListedImages:
    """Pictures of any sizes, held in memory, each uint8 [H, W, 3]."""

    pixels: tuple[Pixels, ...]

    def __len__(self) -> int:
        return len(self.pixels)

    def original(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def batch(self, index: Index, size: int) -> Pixels:
        return _stack(self, index, size)


@dataclass(frozen=True, slots=True)
class JoinedImages:
    """The pictures of `first`, followed by those of `second`."""

    first: Images
    second: Images

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def original(self, index: int) -> Image.Image:
        before = len(self.first)
        return self.first.original(index) if index < before else self.second.original(index - before)

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

    def original(self, index: int) -> Image.Image:
        return self._images.original(index)

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


def _stack(images: Images, index: Index, size: int) -> Pixels:
    return np.stack([to_pixels(images.original(int(i)), size) for i in index])
