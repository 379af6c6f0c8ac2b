"""Image data sets: one loader each, all giving the same value. Knows no model and no tracking.

Embedded: the handwritten digits that ship with scikit-learn (1,797 real images), with three tasks of different
difficulty. From outside: a parquet file, an image folder, or a data set of the Hugging Face hub.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pliant.errors import InputError, OfflineError
from pliant.tokens.image import to_pixels

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
class Split:
    """Disjoint indices: `fit` trains, `profiling` (one fifth of the training data) plans, `test` reports."""

    fit: Index
    profiling: Index
    test: Index


@dataclass(frozen=True, slots=True)
class ImageData:
    """A labelled data set for one task. `fingerprint` identifies content and labels."""

    name: str
    images: Images
    labels: Index
    classes: tuple[str, ...]
    split: Split
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ArrayImages:
    """Pictures held in memory, uint8 [N, H, W] (grey) or [N, H, W, 3]."""

    pixels: Pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def original(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def batch(self, index: Index, size: int) -> Pixels:
        return np.stack([to_pixels(self.original(int(i)), size) for i in index])


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
        return np.stack([to_pixels(self.original(int(i)), size) for i in index])


def split(count: int, seed: int, test_share: float = 0.2, profiling_share: float = 0.2) -> Split:
    """A random split: `test_share` of all for the test, `profiling_share` of the rest for profiling."""
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    tested = round(count * test_share)
    profiled = round((count - tested) * profiling_share)
    return Split(order[tested + profiled :], order[tested : tested + profiled], order[:tested])


DIGIT_TASKS = ("digit", "loops", "stroke")


def digits(task: str, seed: int = 0) -> ImageData:
    """The handwritten digits (Alpaydin and Kaynak, UCI 1998), 8 x 8 pixels, under one of three tasks.

    digit: which of 0 to 9. loops: how many closed loops the digit has (0, 1 or 2). stroke: how heavy the pen was, in
    thirds of the ink on the training images; nothing about it follows from the digit's class.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = split(len(bunch.target), seed)
    labels, classes = _digit_labels(task, bunch.images, bunch.target, chosen)
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    return ImageData(task, ArrayImages(pixels), labels, classes, chosen, _fingerprint(pixels, labels, chosen))


def _digit_labels(task: str, images: Any, target: Any, chosen: Split) -> tuple[Index, tuple[str, ...]]:
    match task:
        case "digit":
            return target.astype(np.int64), tuple(str(i) for i in range(10))
        case "loops":
            loops = np.array([1, 0, 0, 0, 0, 0, 1, 0, 2, 1])
            return loops[target].astype(np.int64), ("none", "one", "two")
        case "stroke":
            ink = images.sum(axis=(1, 2))
            thirds = np.quantile(ink[chosen.fit], [1 / 3, 2 / 3])
            return np.searchsorted(thirds, ink).astype(np.int64), ("light", "medium", "heavy")
    raise InputError("task", task, f"one of {', '.join(DIGIT_TASKS)}")


def parquet(
    path: Path, image: str = "image", label: str = "label", seed: int = 0, limit: int | None = None
) -> ImageData:
    """A parquet file with an image column and a label column (class names are read from its features)."""
    import datasets

    if not path.is_file():
        raise InputError("data", path, "an existing parquet file")
    rows = datasets.load_dataset("parquet", data_files=str(path), split="train")
    return _from_rows(path.stem, rows, image, label, seed, limit)


def folder(path: Path, seed: int = 0, limit: int | None = None) -> ImageData:
    """A folder with one sub-folder of images per class."""
    import datasets

    if not path.is_dir():
        raise InputError("data", path, "an existing folder with one sub-folder of images per class")
    rows = datasets.load_dataset("imagefolder", data_dir=str(path), split="train")
    return _from_rows(path.name, rows, "image", "label", seed, limit)


def hub(name: str, image: str = "image", label: str = "label", seed: int = 0, limit: int | None = None) -> ImageData:
    """A data set of the Hugging Face hub. Raises `OfflineError` where the hub is out of reach."""
    import datasets

    try:
        rows = datasets.load_dataset(name, split="train")
    except Exception as error:
        raise OfflineError(
            f"the data set {name} could not be fetched from the hub ({type(error).__name__}); without a network use "
            "a local file (parquet:PATH), an image folder (folder:PATH) or the embedded data (digits)"
        ) from error
    return _from_rows(name.rsplit("/", 1)[-1], rows, image, label, seed, limit)


def load(source: str, task: str | None = None, seed: int = 0, limit: int | None = None) -> ImageData:
    """By address: `digits:TASK`, `parquet:PATH`, `folder:PATH` or `hub:NAME`. `task` renames it."""
    scheme, _, rest = source.partition(":")
    match scheme:
        case "digits":
            data = digits(rest or "digit", seed)
        case "parquet":
            data = parquet(Path(rest), seed=seed, limit=limit)
        case "folder":
            data = folder(Path(rest), seed=seed, limit=limit)
        case "hub":
            data = hub(rest, seed=seed, limit=limit)
        case _:
            raise InputError("data", source, "digits:TASK, parquet:PATH, folder:PATH or hub:NAME")
    if task is None:
        return data
    return ImageData(task, data.images, data.labels, data.classes, data.split, data.fingerprint)


def _from_rows(name: str, rows: Any, image: str, label: str, seed: int, limit: int | None) -> ImageData:
    for column in (image, label):
        if column not in rows.column_names:
            raise InputError("column", column, f"one of {', '.join(rows.column_names)}")
    if limit is not None and limit < len(rows):
        rows = rows.shuffle(seed=seed).select(range(limit))
    labels, classes = _labels(rows, label)
    chosen = split(len(rows), seed)
    mark = hashlib.sha256(f"{rows._fingerprint}".encode()).hexdigest()
    return ImageData(name, DatasetImages(rows, image), labels, classes, chosen, f"sha256:{mark}")


def _labels(rows: Any, label: str) -> tuple[Index, tuple[str, ...]]:
    feature, values = rows.features[label], rows[label]
    if hasattr(feature, "names"):
        return np.asarray(values, dtype=np.int64), tuple(feature.names)
    names: Sequence[Any] = sorted(set(values))
    where = {value: i for i, value in enumerate(names)}
    return np.array([where[v] for v in values], dtype=np.int64), tuple(str(n) for n in names)


def _fingerprint(pixels: Pixels, labels: Index, chosen: Split) -> str:
    mark = hashlib.sha256(pixels.tobytes() + labels.tobytes())
    for part in (chosen.fit, chosen.profiling, chosen.test):
        mark.update(part.tobytes())
    return f"sha256:{mark.hexdigest()}"
