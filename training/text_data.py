"""Labelled texts: single ones or pairs, with classes or numbers as labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training.groups import Repeats, Split, of_texts, separate
from pliant.training.tables import text_fault

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextData:
    """A data set of labelled texts.

    `second` is None for single texts. Labels are class numbers (int64), or float64 where `classes` is empty.
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


def with_fit(data: TextData, more: TextData) -> TextData:
    """Return the data set with the rows that `more` trains on added to those that it trains on itself.

    Rows of `more` that the data set holds out are left out. Raises `InputError` where one has pairs or classes that the
    other lacks.
    """
    if (data.second is None) != (more.second is None) or data.classes != more.classes:
        raise InputError("texts to add", more.name, "of the same classes, and single or pairs alike")
    rows = more.split.fit
    second = None
    if data.second is not None and more.second is not None:
        second = (*data.second, *(more.second[row] for row in rows))
    first = (*data.first, *(more.first[row] for row in rows))
    added = np.arange(len(data.first), len(first), dtype=np.int64)
    fit = np.concatenate([data.split.fit, added])
    chosen = replace(data.split, fit=fit, brought=("test", "profiling"))
    labels = np.concatenate([data.labels, more.labels[rows]])
    return assemble(data.name, first, second, labels, data.classes, chosen)


def is_text(value: Any) -> bool:
    """Whether a data set may hold the value as a text: it is not empty, and of whole characters."""
    return not text_fault(value)


def _text(value: Any, row: int) -> str:
    if reason := text_fault(value):
        raise InputError(f"text of row {row}", reason, "a text that is not empty, of whole characters")
    return str(value)
