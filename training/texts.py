"""Where labelled texts come from, by address. One loader each, all giving a `TextData`.

From outside: parquet files, a CSV or JSON-lines file, or a data set of the Hugging Face hub. The embedded corpus is in
training/docstrings.py. Knows no model and no tracking.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError, OfflineError
from training.data import cut, split
from training.text_data import Shares, TextData, assemble

LABELS = ("label", "labels", "intent", "scenario", "score", "target")
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("text1", "text2"), ("text", "text2")),
)
USUAL = Shares()
SINGLES = ("text", "sentence", "question", "utterance")


def load(
    address: str, name: str | None = None, seed: int = 0, limit: int | None = None, shares: Shares = USUAL
) -> TextData:
    """By address: `docstrings:TASK`, `parquet:PATH[,PATH]`, `csv:PATH`, `json:PATH` or `hub:NAME[:PART]`. `name` renames it.

    `limit` keeps that many rows. Raises `InputError`, `OfflineError`.
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


def from_rows(name: str, rows: Any, seed: int = 0, limit: int | None = None, shares: Shares = USUAL) -> TextData:
    """From a `datasets.Dataset`; columns go by their usual names. Raises `InputError` naming what is missing."""
    label = _column(rows, LABELS, "label")
    first, second = _text_columns(rows)
    labels, classes = _labels(rows, label)
    chosen = cut(split(len(rows), seed, shares.test, shares.profiling), limit)
    return assemble(name, rows[first], rows[second] if second else None, labels, classes, chosen)


def _read(scheme: str, paths: Sequence[Path]) -> Any:
    import datasets

    for path in paths:
        if not path.is_file():
            raise InputError("data", path, f"an existing {scheme} file")
    try:
        return datasets.load_dataset(scheme, split="train", data_files=[str(path) for path in paths])
    except Exception as error:  # its readers pass on whatever they meet
        raise InputError("data", paths[0], f"a readable {scheme} file ({type(error).__name__}: {error})") from error


def _fetch(name: str) -> Any:
    import datasets

    name, _, part = name.partition(":")
    try:
        return datasets.load_dataset(name, part or None, split="train")
    except Exception as error:
        raise OfflineError(
            f"the data set {name} could not be fetched from the hub ({type(error).__name__}); without a network use "
            "a local file (parquet:PATH, csv:PATH, json:PATH) or the embedded corpus (docstrings:package)"
        ) from error


def _column(rows: Any, names: Sequence[str], what: str) -> str:
    found = next((name for name in names if name in rows.column_names), None)
    if found is None:
        raise InputError(f"the {what} column", ", ".join(rows.column_names), f"one of {', '.join(names)}")
    return found


def _text_columns(rows: Any) -> tuple[str, str | None]:
    """A pair's before a single one's: "sentence" is the second text where there is a "question"."""
    for pair in PAIRS:
        if set(pair) <= set(rows.column_names):
            return pair
    return _column(rows, SINGLES, "text"), None


def _labels(rows: Any, column: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Class numbers and names; fractions are a regression's."""
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
    where = {value: number for number, value in enumerate(names)}
    return np.array([where[value] for value in values], dtype=np.int64), tuple(map(str, names))
