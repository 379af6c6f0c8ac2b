"""Joins the pictures of a task with pictures that clients have labelled, so that a task is trained on both.

The old data must not drown the new: in each split labelled pictures are repeated until they are at least a third of its
rows, but no picture more than `MOST_TIMES`. What is planned and judged with has the same weights as what is trained on. Two
thirds of old data keep a task from forgetting what it could do (docs/tokens.md has the figures).
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pliant.training.data import ImageData, Split
from pliant.training.pictures import ArrayImages, HeldImages, Index, JoinedImages, Pixels

SHARE = 1 / 3  # of the rows of a split: labelled pictures, at least
MOST_TIMES = 8
CHUNK = 256  # pictures that are decoded at a time
MARK = "labels:"

Part = Literal["fit", "profiling", "test"]


@dataclass(frozen=True, slots=True)
class LabelledPicture:
    """A picture as a service got it, uint8 [H, W, 3], its class by name, and the split and slices that it belongs to."""

    pixels: Pixels
    label: str
    part: Part
    slices: tuple[str, ...] = ()


def join(data: ImageData, pictures: Sequence[LabelledPicture], held_out: float) -> ImageData:
    """Return the task's data with the labelled pictures, whose rows come behind those of the data.

    A picture that the data have already, pixel for pixel, belongs to the split that it has there: else a client that sends
    pictures of the test split would have them trained on. In each split, and in whatever part of it is taken from its
    start, old and labelled rows are mixed evenly. The last `held_out` of the fit split, on which trials of the learning
    rate are judged, repeats no picture of its rest. Raises `ValueError` for a label that is no class of the task.
    """
    if not pictures:
        return data
    ordered = sorted(pictures, key=_digest)  # by content: no tenant and no hour comes first
    labels = np.array([data.classes.index(picture.label) for picture in ordered], np.int64)
    images = JoinedImages(data.images, HeldImages(ArrayImages(tuple(picture.pixels for picture in ordered))))
    own = _own_parts(data, ordered)
    parts = [own.get(_pixel_digest(picture.pixels), picture.part) for picture in ordered]
    rows = {
        name: np.array([len(data.images) + i for i, part in enumerate(parts) if part == name], np.int64)
        for name in ("fit", "profiling", "test")
    }
    old = data.split
    # Rows of the fit split that are trained on in trials come before those that trials are judged on.
    times = _times(len(old.fit), len(rows["fit"]))
    cut, last = (round(len(part) * (1 - held_out)) for part in (old.fit, rows["fit"]))
    trained = _mixed(old.fit[:cut], rows["fit"][:last], times)
    fit = np.concatenate([trained, _mixed(old.fit[cut:], rows["fit"][last:], times)])
    split = Split(fit, _mixed(old.profiling, rows["profiling"]), _mixed(old.test, rows["test"]))
    mark = hashlib.sha256()
    for picture in ordered:
        mark.update(_digest(picture))
    for part in (split.fit, split.profiling, split.test):
        mark.update(len(part).to_bytes(8, "big") + part.tobytes())
    labels, fingerprint = np.concatenate([data.labels, labels]), f"{MARK}{mark.hexdigest()[:24]}:{data.fingerprint}"
    named = {len(data.images) + i: picture.slices for i, picture in enumerate(ordered) if picture.slices}
    return replace(data, images=images, labels=labels, split=split, fingerprint=fingerprint, slices=named)


def counts(data: ImageData, joined: ImageData) -> dict[str, int]:
    """Return how many labelled pictures each split has, without repetitions."""
    split, first = joined.split, len(data.images)
    parts = {"fit": split.fit, "profiling": split.profiling, "test": split.test}
    return {name: len(np.unique(rows[rows >= first])) for name, rows in parts.items()}


def is_joined(fingerprint: str) -> bool:
    """Whether a fingerprint is of data with labelled pictures."""
    return fingerprint.startswith(MARK)


def original(fingerprint: str) -> str:
    """Return the fingerprint of the data without labelled pictures."""
    return fingerprint.removeprefix(MARK).partition(":")[2] if is_joined(fingerprint) else fingerprint


def _own_parts(data: ImageData, pictures: Sequence[LabelledPicture]) -> dict[bytes, Part]:
    """Return the split of each picture of the data by its pixels' digest, in the size that most labelled ones have."""
    size, width = Counter(picture.pixels.shape[:2] for picture in pictures).most_common(1)[0][0]
    if size != width:
        return {}  # no service gives its backbone such pictures
    split = data.split
    parts: tuple[tuple[Part, Index], ...] = (("fit", split.fit), ("profiling", split.profiling), ("test", split.test))
    return {
        _pixel_digest(pixels): name
        for name, rows in parts  # of a picture that the data have twice, the later one: rather tested with than trained on
        for start in range(0, len(rows), CHUNK)
        for pixels in data.images.batch(rows[start : start + CHUNK], size)
    }


def _times(old: int, labelled: int) -> int:
    """Return how often labelled rows are repeated beside this many old ones."""
    wanted = old * SHARE / (1 - SHARE)
    return min(max(math.ceil(wanted / labelled), 1), MOST_TIMES) if labelled else 1


def _mixed(old: Index, labelled: Index, times: int | None = None) -> Index:
    """Return all rows, evenly mixed, those that are labelled so many times (None: as often as the rule says)."""
    repeated = np.tile(labelled, _times(len(old), len(labelled)) if times is None else times)
    place = np.concatenate([(np.arange(len(rows)) + 0.5) / max(len(rows), 1) for rows in (old, repeated)])
    return np.concatenate([old, repeated])[np.argsort(place, kind="stable")]


def _pixel_digest(pixels: Pixels) -> bytes:
    return hashlib.sha256(pixels.tobytes()).digest()


def _digest(picture: LabelledPicture) -> bytes:
    shape, label = repr(picture.pixels.shape), picture.label
    return hashlib.sha256(f"{shape} {label} ".encode() + picture.pixels.tobytes()).digest()
