"""Labelled texts: single ones or pairs, with classes or numbers as labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training.groups import Repeats, Split, of_texts, separate
from pliant.training.tables import text_fault

Index = NDArray[np.int64]
UNKNOWN = -1  # number of a class


@dataclass(frozen=True, slots=True)
class TextData:
    """A data set of labelled texts.

    `second` is None for single texts. Labels are class numbers (int64), UNKNOWN where nobody said one, or float64 where
    `classes` is empty.
    `fingerprint` identifies texts, labels, class names and split, wherever they were read from.
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...] | None
    labels: Index | NDArray[np.float64]
    classes: tuple[str, ...]
    split: Split
    fingerprint: str
    repeats: Repeats | None = None

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers instead of classes."""
        return not self.classes

    def texts(self, index: Index) -> list[tuple[str, str | None]]:
        """Return the texts of these rows, each with its second one (None: there is none)."""
        if self.second is None:
            return [(self.first[i], None) for i in index]
        return [(self.first[i], self.second[i]) for i in index]


@dataclass(frozen=True, slots=True)
class Shares:
    """How a data set is split: `test` of all rows, `profiling` of the rest, as in training/data.py."""

    test: float = 0.2
    profiling: float = 0.25


def assemble(
    name: str,
    first: Sequence[str],
    second: Sequence[str] | None,
    labels: NDArray[Any],
    classes: tuple[str, ...],
    chosen: Split,
) -> TextData:
    """Return the checked data set, with equal texts in one part of the split.

    Raises `InputError` for a row without a text, and for labels from which nothing can be learnt.
    """
    texts = tuple(_text(value, row) for row, value in enumerate(first))
    others = None if second is None else tuple(_text(value, row) for row, value in enumerate(second))
    if not np.all(np.isfinite(labels)):
        raise InputError("label", "not a number", "finite in every row")
    if len(classes) == 1:
        raise InputError("label", f"always {classes[0]}", "one of two or more classes")
    chosen, repeats = separate(chosen, of_texts(texts, others), labels)
    mark = hashlib.sha256(repr(tuple(classes)).encode())
    for text in (*texts, *(others or ())):
        mark.update(text.encode() + b"\0")
    for part in (labels, chosen.fit, chosen.profiling, chosen.test):
        mark.update(part.tobytes())
    return TextData(name, texts, others, labels, classes, chosen, f"sha256:{mark.hexdigest()}", repeats)


def with_rows(
    data: TextData, rows: Sequence[tuple[str, str | None, float]], divide: Callable[[Index], Split]
) -> TextData:
    """Return the data set with more rows, each of text, second text and label, in the split that `divide` makes.

    `divide` is given the numbers of the new rows.
    """
    first = (*data.first, *(row[0] for row in rows))
    second = None if data.second is None else (*data.second, *(row[1] or "" for row in rows))
    labels = np.concatenate([data.labels, np.array([row[2] for row in rows]).astype(data.labels.dtype)])
    chosen = divide(np.arange(len(data.first), len(first), dtype=np.int64))
    return assemble(data.name, first, second, labels, data.classes, chosen)


def with_classes(data: TextData, classes: tuple[str, ...]) -> TextData:
    """Return the data set with its classes numbered as `classes` are. Raises `InputError` for a class that these lack."""
    if lacking := [name for name in data.classes if name not in classes]:
        raise InputError("label", lacking[0], f"one of the classes of its classifier: {', '.join(classes)}")
    number_K = np.array([classes.index(name) for name in data.classes], dtype=np.int64)
    labels = number_K[data.labels.astype(np.int64)]
    return assemble(data.name, data.first, data.second, labels, classes, data.split)


def without_labels(
    name: str, texts: Sequence[tuple[str, str | None]], classes: tuple[str, ...], chosen: Split
) -> TextData:
    """Return the data set of texts whose labels are all unknown."""
    second = None if texts[0][1] is None else [text[1] or "" for text in texts]
    labels = np.full(len(texts), UNKNOWN, dtype=np.int64)
    return assemble(name, [text[0] for text in texts], second, labels, classes, chosen)


def is_text(value: Any) -> bool:
    """Whether a data set may hold the value as a text: it is not empty, and of whole characters."""
    return not text_fault(value)


def _text(value: Any, row: int) -> str:
    if reason := text_fault(value):
        raise InputError(f"text of row {row}", reason, "a text that is not empty, of whole characters")
    return str(value)
