"""Labelled texts by address: parquet, CSV or JSON-lines files, data sets of the hub, or the embedded corpus.

The embedded corpus is in training/docstrings.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from training.data import cut, fetch_rows, read_rows, split
from training.text_data import Shares, TextData, assemble

LABELS = ("label", "labels", "intent", "scenario", "score", "target")
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("text1", "text2"), ("text", "text2")),
)
DEFAULT_SHARES = Shares()
SINGLES = ("text", "sentence", "question", "utterance")


def load(
    address: str, name: str | None = None, seed: int = 0, limit: int | None = None, shares: Shares = DEFAULT_SHARES
) -> TextData:
    """Return the data set at `docstrings:TASK`, `parquet:PATH[,PATH]`, `csv:PATH`, `json:PATH` or `hub:NAME[:PART]`.

    `name` renames it; `limit` keeps that many rows. Raises `InputError`, and `OfflineError` where the hub is out of
    reach.
    """
    scheme, _, rest = address.partition(":")
    match scheme:
        case "docstrings":
            from training import docstrings

            return docstrings.load(rest or "package", name, seed, limit, shares)
        case "parquet" | "csv" | "json":
            paths = [Path(part) for part in rest.split(",")]
            return from_rows(name or paths[0].stem, _read(scheme, paths), seed, limit, shares)
        case "hub":
            return from_rows(name or rest.rsplit("/", 1)[-1].replace(":", "-"), _fetch(rest), seed, limit, shares)
    raise InputError("data", address, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH or hub:NAME[:PART]")


def from_rows(
    name: str, rows: Any, seed: int = 0, limit: int | None = None, shares: Shares = DEFAULT_SHARES
) -> TextData:
    """Return the data set of a `datasets.Dataset`, whose columns are found by their usual names.

    Raises `InputError` for a missing column.
    """
    label = _column(rows, LABELS, "label")
    first, second = _text_columns(rows)
    labels, classes = _labels(rows, label)
    chosen = cut(split(len(rows), seed, shares.test, shares.profiling), limit)
    return assemble(name, rows[first], rows[second] if second else None, labels, classes, chosen)


def _read(scheme: str, paths: Sequence[Path]) -> Any:
    for path in paths:
        if not path.is_file():
            raise InputError("data", path, f"an existing {scheme} file")
    return read_rows(scheme, paths[0], f"a readable {scheme} file", data_files=[str(path) for path in paths])


def _fetch(address: str) -> Any:
    name, _, part = address.partition(":")
    works = "a local file (parquet:PATH, csv:PATH, json:PATH) or the embedded corpus (docstrings:package)"
    return fetch_rows(name, part or None, works)


def _column(rows: Any, names: Sequence[str], content: str) -> str:
    column = next((name for name in names if name in rows.column_names), None)
    if column is None:
        raise InputError(f"the {content} column", ", ".join(rows.column_names), f"one of {', '.join(names)}")
    return column


def _text_columns(rows: Any) -> tuple[str, str | None]:
    """Return the columns of texts. Pairs are tried first, as "sentence" may be the second text of a "question"."""
    for pair in PAIRS:
        if set(pair) <= set(rows.column_names):
            return pair
    return _column(rows, SINGLES, "text"), None


def _labels(rows: Any, column: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return class numbers and names; fractions are labels of a regression, which has no names."""
    feature, values = rows.features[column], rows[column]
    if any(value is None for value in values):
        raise InputError("label", "missing", "given in every row")
    if hasattr(feature, "names"):
        numbers = np.asarray(values, dtype=np.int64)
        if numbers.min(initial=0) < 0:
            raise InputError("label", int(numbers.min()), "at least 0 (a test split without its labels?)")
        return numbers, tuple(feature.names)
    if getattr(feature, "dtype", "").startswith("float"):
        return np.asarray(values, dtype=np.float64), ()
    if not all(isinstance(value, (str, int)) for value in values):
        raise InputError("label", f"of type {feature}", "a number or a text in every row")
    names = sorted(set(values))
    number_of = {value: number for number, value in enumerate(names)}
    return np.array([number_of[value] for value in values], dtype=np.int64), tuple(map(str, names))
