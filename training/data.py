"""Labelled pictures by address: the embedded digits, a parquet file, an image folder, or a data set of the hub.

The embedded data are the handwritten digits of scikit-learn (1,797 real images), with three tasks of different
difficulty.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from errno import ENOENT
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pliant.errors import InputError, OfflineError
from pliant.models.image import MAX_PIXELS, decode, pixel_passes, read
from pliant.training.groups import Repeats, of_keys, separate
from pliant.training.groups import Split as Split
from pliant.training.pictures import ArrayImages, FileImages, HeldImages, Images, Index
from pliant.training.tables import VALID, Faults, cause, classes_of, label_fault, of_dataset

COMPARED, SIDE = 32, 64  # test pictures whose files are read again, and the size of their pixels
TOGETHER = 64  # files that are looked at together

FIT, TEST, VALIDATION = "fit", "test", "validation"
PARTS = {
    **dict.fromkeys(("train", "training"), FIT),
    **dict.fromkeys(("test", "testing"), TEST),
    **dict.fromkeys(("val", "valid", "validation", "dev"), VALIDATION),
}
"""The parts of the data by the names of their folders."""
NOTES = frozenset({".txt", ".md", ".rst", ".pdf", ".html", ".ini", ".db", ".yaml", ".yml", ".xml"})
TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")  # which `datasets` would take labels from
LAYOUT = "a folder with one sub-folder of images per class, or with such folders named train and test"


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
    repeats: Repeats | None = None
    slices: Mapping[int, tuple[str, ...]] = field(default_factory=dict)  # of rows that clients labelled


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table of pictures."""

    image: str = "image"
    label: str = "label"


DEFAULT_COLUMNS = Columns()


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
    return Split(*(part[:share] for part, share in zip(indices, shares, strict=True)), brought=whole.brought)


DIGIT_TASKS = ("digit", "loops", "stroke")


def digits(task: str, seed: int = 0) -> ImageData:
    """Return the handwritten digits (Alpaydin and Kaynak, UCI 1998), 8 x 8 pixels, under one of three tasks.

    digit: which of 0 to 9. loops: how many closed loops the digit has (0, 1 or 2). stroke: how heavy the pen was, in
    thirds of the ink on the training images; it does not depend on the digit.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    chosen = split(len(bunch.target), seed)
    match task:
        case "digit":
            labels, classes = bunch.target, tuple(str(i) for i in range(10))
        case "loops":
            labels, classes = np.array([1, 0, 0, 0, 0, 0, 1, 0, 2, 1])[bunch.target], ("none", "one", "two")
        case "stroke":
            ink = bunch.images.sum(axis=(1, 2))
            thirds = np.quantile(ink[chosen.fit], [1 / 3, 2 / 3])
            labels, classes = np.searchsorted(thirds, ink), ("light", "medium", "heavy")
        case _:
            raise InputError("task", task, f"one of {', '.join(DIGIT_TASKS)}")
    pixels = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    files = ((picture.tobytes(), picture.tobytes()) for picture in pixels)
    return _assembled(task, ArrayImages(pixels), labels.astype(np.int64), classes, chosen, files)


def parquet(
    path: Path, image: str = "image", label: str = "label", seed: int = 0, limit: int | None = None
) -> ImageData:
    """Return a parquet file with an image and a label column (class names are read from its features)."""
    from datasets.data_files import DataFilesDict, DataFilesList
    from datasets.packaged_modules.parquet.parquet import Parquet

    try:
        # It is looked for on the disk by its digest: by its path `datasets` would take the file for a pattern, and by its
        # time stamp a replaced one for the same.
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        builder = Parquet(data_files=DataFilesDict({"train": DataFilesList([str(path.resolve())], [(digest,)])}))
        builder.download_and_prepare()
        rows = builder.as_dataset("train")
    except Exception as error:  # its readers raise many kinds
        raise InputError("data", f"{path} ({cause(error)})", VALID["parquet"]) from error
    return _from_rows(path.stem, rows, image, label, seed, limit)


def folder(path: Path, seed: int = 0, limit: int | None = None) -> ImageData:
    """Return a folder with one sub-folder of images per class, or such folders for parts of the data (`labelled_files`).

    A test and a validation part that are there are used: the second is what is planned by.
    """
    files = labelled_files(path)
    classes = tuple(sorted({file.label for file in files}))
    labels = np.array([classes.index(file.label) for file in files], np.int64)
    part_of = np.array([file.part for file in files])
    test, validation = (np.flatnonzero(part_of == name).astype(np.int64) for name in (TEST, VALIDATION))
    kept, chosen = _kept(_split_with(len(files), test, validation, seed), limit)
    if kept is not None:
        files, labels = [files[i] for i in kept], labels[kept]
    images = FileImages(len(files), lambda i: files[i].path.read_bytes())
    looked_at = _files(images, lambda i: str(files[i].path))
    return _assembled(path.name, HeldImages(images), labels, classes, chosen, looked_at)


def _split_with(count: int, test: Index, profiling: Index, seed: int) -> Split:
    """Return a split as `split` does, whose test and profiling rows are the given ones where there are any."""
    brought = tuple(name for name, rows in (("test", test), ("profiling", profiling)) if len(rows))
    if not len(test) and not len(profiling):
        return split(count, seed)
    rest = np.setdiff1d(np.arange(count), np.concatenate([test, profiling]))
    shuffled = np.random.default_rng(seed).permutation(rest).astype(np.int64)
    if not len(test):
        tested = round(count * 0.2)
        test, shuffled = shuffled[:tested], shuffled[tested:]
    if not len(profiling):
        profiled = round(len(shuffled) * 0.2)
        profiling, shuffled = shuffled[:profiled], shuffled[profiled:]
    if not len(shuffled):
        raise InputError("data", f"{count} images", "enough for a fit, a profiling and a test split")
    return Split(shuffled, profiling, test, brought=brought)


def fetch_rows(name: str, part: str | None, instead: str) -> Any:
    """Return the training rows of a data set of the hub. Raises `OfflineError` with what works `instead`."""
    import datasets

    try:
        return datasets.load_dataset(name, part, split="train")
    except Exception as error:
        raise OfflineError(
            f"the data set {name} could not be fetched from the hub ({cause(error)}); without a network use {instead}"
        ) from error


def load(
    source: str,
    task: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    columns: Columns = DEFAULT_COLUMNS,
) -> ImageData:
    """Return the data set at `digits:TASK`, `parquet:PATH`, `folder:PATH` or `hub:NAME`; `task` renames it.

    `limit` keeps that many pictures (not of the digits), each in the part where it is without a limit, unless it repeats:
    equal pictures are looked for among those that are kept. Raises `InputError`, also by name for all files that a service
    could not read, and `OfflineError` where the hub is out of reach.
    """
    scheme, _, rest = source.partition(":")
    match scheme:
        case "digits":
            data = digits(rest or "digit", seed)
        case "parquet":
            data = parquet(Path(rest), columns.image, columns.label, seed, limit)
        case "folder":
            data = folder(Path(rest), seed=seed, limit=limit)
        case "hub":
            works = "a local file (parquet:PATH), an image folder (folder:PATH) or the embedded data (digits)"
            rows = fetch_rows(rest, None, works)
            data = _from_rows(rest.rsplit("/", 1)[-1], rows, columns.image, columns.label, seed, limit)
        case _:
            raise InputError("data", source, "digits:TASK, parquet:PATH, folder:PATH or hub:NAME")
    for row in data.split.test[:COMPARED]:
        file = data.images.file(int(row))
        if not np.array_equal(decode(file, SIDE, MAX_PIXELS), data.images.batch(row[None], SIDE)[0]):
            raise InputError("data", f"{data.name}, whose picture {row} has other pixels", "read as a service reads it")
    return data if task is None else replace(data, name=task)


def _from_rows(name: str, rows: Any, image: str, label: str, seed: int, limit: int | None) -> ImageData:
    for column in (image, label):
        if column not in rows.column_names:
            raise InputError("column", column, f"one of {', '.join(rows.column_names)}")
    labels, classes = _labels(rows, label)
    kept, chosen = _kept(split(len(rows), seed), limit)
    if kept is not None:
        rows, labels = rows.select(kept), labels[kept]
    import datasets

    try:  # files not written by `datasets` hold bytes or paths without saying so
        rows = rows.cast_column(image, datasets.Image(decode=False))
    except Exception as error:
        raise InputError("column", image, f"one of images, not {rows.features[image]}") from error
    images = FileImages(len(rows), lambda i: _file(rows[i][image] or {}))
    looked_at = _files(images, lambda i: (rows[i][image] or {}).get("path") or f"row {i}")
    return _assembled(name, HeldImages(images), labels, classes, chosen, looked_at)


def _file(row: Mapping[str, Any]) -> bytes:
    if not row.get("bytes") and not row.get("path"):
        raise FileNotFoundError(ENOENT, "no picture")
    return bytes(row["bytes"] or Path(row["path"]).read_bytes())


def _kept(whole: Split, limit: int | None) -> tuple[Index | None, Split]:
    """Return the rows to keep (None: all of them), and the split in their new order."""
    chosen = cut(whole, limit)
    if chosen is whole:
        return None, whole
    indices = (chosen.fit, chosen.profiling, chosen.test)
    ends = np.cumsum([0, *map(len, indices)])
    placed = (np.arange(start, end, dtype=np.int64) for start, end in pairwise(ends))
    return np.concatenate(indices), Split(*placed, brought=whole.brought)


def _files(images: Images, name_of: Callable[[int], str]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each picture's file and the digest of its pixels.

    Raises `InputError` at the end, by name, for those that a service could not read.
    """
    faults = Faults()
    with ThreadPoolExecutor() as pool:  # PIL lets go of the interpreter's lock while it decodes
        numbers = iter(range(len(images)))
        while some := list(islice(numbers, TOGETHER)):
            for number, (file, digest, fault) in zip(some, pool.map(partial(_looked_at, images), some), strict=True):
                if fault:
                    faults.add(name_of(number), fault)
                yield file, digest
    faults.check("data", "", "files", "whole pictures")


def _looked_at(images: Images, number: int) -> tuple[bytes, bytes, str]:
    """Return a picture's file, the digest of its pixels, and why a service could not read it; "" where it can."""
    try:
        file = images.file(number)
    except OSError as error:
        return b"", b"", error.strerror or type(error).__name__
    try:
        pixel_passes(file, MAX_PIXELS)
        picture = read(file, MAX_PIXELS).convert("RGB")
    except InputError as error:
        return file, b"", str(error)
    return file, hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).digest(), ""


def _labels(rows: Any, label: str) -> tuple[Index, tuple[str, ...]]:
    table, faults = of_dataset(rows, {label}), Faults()
    values, names = table.columns[label], table.classes.get(label, ())
    for row, value in enumerate(values):
        if reason := label_fault(value, names, regression=False):
            faults.add(table.place(row), reason)
    faults.check("data", "", "rows", "labels that are texts or whole numbers")
    return classes_of(values, names)


def _assembled(
    name: str,
    images: Images,
    labels: Index,
    classes: tuple[str, ...],
    whole: Split,
    looked_at: Iterable[tuple[bytes, bytes]],
) -> ImageData:
    """Return the data set with equal pictures in one part. `looked_at`: each picture's file and digest, read once."""
    mark = hashlib.sha256(repr(tuple(classes)).encode())
    digests = []
    for file, digest in looked_at:
        mark.update(file)
        digests.append(digest)
    chosen, repeats = separate(whole, of_keys(digests), labels)
    for part in (labels, chosen.fit, chosen.profiling, chosen.test):
        mark.update(part.tobytes())
    return ImageData(name, images, labels, classes, chosen, f"sha256:{mark.hexdigest()}", repeats)


@dataclass(frozen=True, slots=True)
class LabelledFile:
    path: Path
    label: str
    part: str  # FIT, TEST or VALIDATION


def labelled_files(folder: Path) -> Sequence[LabelledFile]:
    """Return the pictures of a folder, in the order of their paths. Raises `InputError` for any other layout.

    A class is a sub-folder, `FOLDER/CLASS/*.jpg`, in which pictures may lie at any depth. Or all sub-folders are parts of
    the data, `FOLDER/train/CLASS/*.jpg` and `FOLDER/test/CLASS/*.jpg`, perhaps `validation`, too; a folder `train` that
    holds pictures itself is a class of that name. Every file is a picture, but for hidden ones and notes such as
    `README.txt`: a picture that cannot be read is refused by name, not left out.
    """
    if not folder.is_dir():
        raise InputError("data", folder, f"an existing folder: {LAYOUT}")
    try:
        inner = _folders(folder)
        parts = {part: PARTS[part.name.lower()] for part in inner if part.name.lower() in PARTS and _folders(part)}
        if parts and len(parts) < len(inner):
            others = ", ".join(each.name for each in inner if each not in parts)
            beside = ", ".join(part.name for part in parts)
            raise InputError("data", f"{folder}, where {others} stands beside {beside}", LAYOUT)
        if parts and FIT not in parts.values():
            raise InputError("data", f"{folder}, which has no folder train", LAYOUT)
        files = [file for part, name in (parts or {folder: FIT}).items() for file in _of_part(part, name)]
    except OSError as error:
        raise InputError("data", f"{error.filename} ({error.strerror})", "a folder that can be read") from None
    if not files:
        raise InputError("data", folder, LAYOUT)
    if lacking := {file.label for file in files} - {file.label for file in files if file.part == FIT}:
        raise InputError("data", f"{folder}, where {', '.join(sorted(lacking))} is in no train folder", LAYOUT)
    return files


def _of_part(folder: Path, part: str) -> Iterator[LabelledFile]:
    for file in sorted(folder.iterdir()):
        if file.name in TABLES:
            raise InputError(
                "data", f"{file}, a table of labels", "sub-folders named by their classes, or a parquet file"
            )
        if _is_picture(file):
            raise InputError("data", f"{file}, which lies in no class's folder", LAYOUT)
    for label in _folders(folder):
        for root, folders, files in os.walk(label, onerror=_raise, followlinks=True):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if Path(root).parent.resolve().is_relative_to(Path(root).resolve()):
                raise InputError("data", f"{root}, a link to a folder that it lies in", LAYOUT)
            pictures = filter(_is_picture, (Path(root, name) for name in sorted(files)))
            yield from (LabelledFile(path, label.name, part) for path in pictures)


def _raise(error: OSError) -> None:
    raise error


def _folders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _is_picture(file: Path) -> bool:
    return not file.is_dir() and not file.name.startswith(".") and file.suffix.lower() not in NOTES
