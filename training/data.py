"""Labelled pictures by address: the embedded digits, a parquet file, an image folder, or a data set of the hub.

The embedded data are the handwritten digits of scikit-learn (1,797 real images), with three tasks of different
difficulty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pliant.errors import InputError, OfflineError
from training.pictures import ArrayImages, DatasetImages, HeldImages, Images, Index


@dataclass(frozen=True, slots=True)
class Split:
    """Disjoint row numbers: `fit` is trained on, `profiling` is measured to plan by, `test` is measured to report."""

    fit: Index
    profiling: Index
    test: Index


@dataclass(frozen=True, slots=True)
class ImageData:
    """A labelled data set for one task.

    `fingerprint` identifies pictures, labels, class names and split, wherever they were read from.
    """

    name: str
    images: Images
    labels: Index
    classes: tuple[str, ...]
    split: Split
    fingerprint: str


def split(count: int, seed: int, test_share: float = 0.2, profiling_share: float = 0.2) -> Split:
    """Return a random split: `test_share` of all for the test, `profiling_share` of the rest for profiling.

    Raises `InputError` where a part would be empty.
    """
    order = np.random.default_rng(seed).permutation(count).astype(np.int64)
    tested = round(count * test_share)
    profiled = round((count - tested) * profiling_share)
    divided = Split(order[tested + profiled :], order[tested : tested + profiled], order[:tested])
    if not all(map(len, (divided.fit, divided.profiling, divided.test))):
        raise InputError("data", f"{count} images", "enough for a fit, a profiling and a test split")
    return divided


def cut(whole: Split, limit: int | None) -> Split:
    """Return the first rows of each part, `limit` in all, in the proportions of the parts.

    Each part remains a subset of what it was. Raises `InputError` where a part would be empty.
    """
    indices = (whole.fit, whole.profiling, whole.test)
    count = sum(map(len, indices))
    if limit is None or limit >= count:
        return whole
    tested, profiled = round(limit * len(whole.test) / count), round(limit * len(whole.profiling) / count)
    shares = (limit - tested - profiled, profiled, tested)
    if min(shares) < 1:
        raise InputError("limit", limit, "enough for a fit, a profiling and a test split")
    return Split(*(part[:share] for part, share in zip(indices, shares, strict=True)))


DIGIT_TASKS = ("digit", "loops", "stroke")


def digits(task: str, seed: int = 0) -> ImageData:
    """Return the handwritten digits (Alpaydin and Kaynak, UCI 1998), 8 x 8 pixels, under one of three tasks.

    digit: which of 0 to 9. loops: how many closed loops the digit has (0, 1 or 2). stroke: how heavy the pen was, in
    thirds of the ink on the training images; it does not depend on the digit.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = split(len(bunch.target), seed)
    labels, classes = _digit_labels(task, bunch.images, bunch.target, chosen)
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    mark = _fingerprint([pixels.tobytes()], labels, classes, chosen)
    return ImageData(task, ArrayImages(pixels), labels, classes, chosen, mark)


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
    """Return a parquet file with an image and a label column (class names are read from its features)."""
    if not path.is_file():
        raise InputError("data", path, "an existing parquet file")
    rows = read_rows("parquet", path, "a readable parquet file", data_files=str(path))
    return _from_rows(path.stem, rows, image, label, seed, limit)


def folder(path: Path, seed: int = 0, limit: int | None = None) -> ImageData:
    """Return a folder with one sub-folder of images per class."""
    if not path.is_dir():
        raise InputError("data", path, "an existing folder with one sub-folder of images per class")
    rows = read_rows("imagefolder", path, "a folder with one sub-folder of images per class", data_dir=str(path))
    return _from_rows(path.name, rows, "image", "label", seed, limit)


def hub(name: str, image: str = "image", label: str = "label", seed: int = 0, limit: int | None = None) -> ImageData:
    """Return a data set of the Hugging Face hub. Raises `OfflineError` where the hub is out of reach."""
    works = "a local file (parquet:PATH), an image folder (folder:PATH) or the embedded data (digits)"
    rows = fetch_rows(name, None, works)
    return _from_rows(name.rsplit("/", 1)[-1], rows, image, label, seed, limit)


def read_rows(kind: str, path: Path, valid: str, setting: str = "data", **source: Any) -> Any:
    """Return the rows of local files, a `datasets.Dataset`. Raises `InputError`: `path`, the `setting`, must be `valid`."""
    import datasets

    try:
        return datasets.load_dataset(kind, split="train", **source)
    except Exception as error:  # its readers raise many kinds
        raise InputError(setting, path, f"{valid} ({type(error).__name__}: {error})") from error


def fetch_rows(name: str, part: str | None, instead: str) -> Any:
    """Return the training rows of a data set of the hub. Raises `OfflineError` with what works `instead`."""
    import datasets

    try:
        return datasets.load_dataset(name, part, split="train")
    except Exception as error:
        raise OfflineError(
            f"the data set {name} could not be fetched from the hub ({type(error).__name__}); "
            f"without a network use {instead}"
        ) from error


def load(source: str, task: str | None = None, seed: int = 0, limit: int | None = None) -> ImageData:
    """Return the data set at `digits:TASK`, `parquet:PATH`, `folder:PATH` or `hub:NAME`; `task` renames it.

    `limit` keeps that many pictures (not of the digits), each in the part where it is without a limit. Raises
    `InputError`, and `OfflineError` where the hub is out of reach.
    """
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
    labels, classes = _labels(rows, label)
    kept, chosen = _kept(split(len(rows), seed), limit)
    if kept is not None:
        rows, labels = rows.select(kept), labels[kept]
    rows = _as_images(rows, image)
    mark = _fingerprint(_files(rows, image), labels, classes, chosen)
    return ImageData(name, HeldImages(DatasetImages(rows, image)), labels, classes, chosen, mark)


def _kept(whole: Split, limit: int | None) -> tuple[Index | None, Split]:
    """Return the rows to keep (None: all of them), and the split in their new order."""
    chosen = cut(whole, limit)
    if chosen is whole:
        return None, whole
    indices = (chosen.fit, chosen.profiling, chosen.test)
    ends = np.cumsum([0, *map(len, indices)])
    placed = (np.arange(start, end, dtype=np.int64) for start, end in pairwise(ends))
    return np.concatenate(indices), Split(*placed)


def _as_images(rows: Any, column: str) -> Any:
    """Mark the column as pictures: files not written by `datasets` hold bytes or paths without saying so."""
    import datasets

    if isinstance(rows.features[column], datasets.Image):
        return rows
    try:
        return rows.cast_column(column, datasets.Image())
    except Exception as error:
        raise InputError("column", column, f"one of images, not {rows.features[column]}") from error


def _files(rows: Any, column: str) -> Iterator[bytes]:
    """Yield the pictures' files, undecoded.

    The fingerprint of `datasets` itself depends on path and time, not on content.
    """
    import datasets

    for row in rows.select_columns(column).cast_column(column, datasets.Image(decode=False)):
        yield row[column]["bytes"] or Path(row[column]["path"]).read_bytes()


def _labels(rows: Any, label: str) -> tuple[Index, tuple[str, ...]]:
    feature, values = rows.features[label], rows[label]
    if hasattr(feature, "names"):
        return np.asarray(values, dtype=np.int64), tuple(feature.names)
    names: Sequence[Any] = sorted(set(values))
    number_of = {value: i for i, value in enumerate(names)}
    return np.array([number_of[v] for v in values], dtype=np.int64), tuple(str(n) for n in names)


def _fingerprint(pictures: Iterable[bytes], labels: Index, classes: Sequence[str], chosen: Split) -> str:
    mark = hashlib.sha256(repr(tuple(classes)).encode())
    for picture in pictures:
        mark.update(picture)
    for part in (labels, chosen.fit, chosen.profiling, chosen.test):
        mark.update(part.tobytes())
    return f"sha256:{mark.hexdigest()}"
