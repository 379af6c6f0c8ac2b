"""Labelled texts by address: parquet, CSV or JSON files, data sets of the hub, or the embedded corpus.

Rows are read as they are written (training/tables.py), and a label is a text, unless labels are called numbers. The embedded
corpus is in training/docstrings.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training import tables
from pliant.training.data import cut, fetch_rows, split
from pliant.training.tables import Faults, Table, classes_of, label_fault, text_fault
from pliant.training.text_data import Shares, TextData, assemble

LABELS = ("label", "labels", "intent", "scenario", "score", "target")
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("text1", "text2"), ("text", "text2")),
)
SINGLES = ("text", "sentence", "question", "utterance")
USUAL = frozenset((*LABELS, *SINGLES, *chain.from_iterable(PAIRS)))
VALID = (
    "whole rows, with texts that are not empty and with labels that are texts or whole numbers "
    "(any numbers with columns.regression = true)"
)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of texts, of the second texts of pairs and of labels; None: the one that has a usual name.

    `regression`: whether labels are numbers. Else they are classes, whatever they look like.
    """

    text: str | None = None
    second: str | None = None
    label: str | None = None
    regression: bool = False

    def __post_init__(self) -> None:
        if self.second is not None and self.text is None:
            raise InputError("columns.second", self.second, "given with columns.text")

    @property
    def wanted(self) -> frozenset[str]:
        """Return the names of all columns that may be chosen."""
        return USUAL | {name for name in (self.text, self.second, self.label) if name is not None}

    def choose(self, names: Sequence[str]) -> tuple[str, str, str | None]:
        """Return the columns of labels, of texts and of second texts.

        Raises `InputError` for one that is missing, and for several that it might be.
        """
        for column in (self.text, self.second, self.label):
            if column is not None and column not in names:
                raise InputError("column", column, f"one of those that are there: {', '.join(names)}")
        label = self.label or _only("label", names, [(name,) for name in LABELS if name in names], LABELS)[0]
        if self.text is not None:
            return label, self.text, self.second
        pairs = [pair for pair in PAIRS if set(pair) <= set(names)]  # "sentence" may be the second text of a "question"
        singles = [(name,) for name in SINGLES if name in set(names) - set(chain.from_iterable(pairs))]
        first, *second = _only("text", names, [*pairs, *singles], SINGLES)
        return label, first, second[0] if second else None


DEFAULT_SHARES, DEFAULT_COLUMNS = Shares(), Columns()


def load(
    address: str,
    name: str | None = None,
    seed: int = 0,
    limit: int | None = None,
    shares: Shares = DEFAULT_SHARES,
    columns: Columns = DEFAULT_COLUMNS,
) -> TextData:
    """Return the data set at `docstrings:TASK`, `parquet:PATH[,PATH]`, `csv:PATH`, `json:PATH` or `hub:NAME[:PART]`.

    `name` renames it; `limit` keeps that many rows. Raises `InputError`, and `OfflineError` where the hub is out of
    reach.
    """
    scheme, _, rest = address.partition(":")
    match scheme:
        case "docstrings":
            from pliant.training import docstrings

            return docstrings.load(rest or "package", name, seed, limit, shares)
        case "parquet" | "csv" | "json":
            paths, faults = tables.paths(rest), Faults()
            read = {str(path): tables.read(scheme, path, columns.wanted, faults) for path in paths}
            return _from_tables(name or paths[0].stem, read, faults, seed, limit, shares, columns)
        case "hub":
            name = name or rest.rsplit("/", 1)[-1].replace(":", "-")
            hub, _, part = rest.partition(":")
            works = "a local file (parquet:PATH, csv:PATH, json:PATH) or the embedded corpus (docstrings:package)"
            return from_rows(name, fetch_rows(hub, part or None, works), seed, limit, shares, columns)
    raise InputError("data", address, "docstrings:TASK, parquet:PATH, csv:PATH, json:PATH or hub:NAME[:PART]")


def from_rows(
    name: str,
    rows: Any,
    seed: int = 0,
    limit: int | None = None,
    shares: Shares = DEFAULT_SHARES,
    columns: Columns = DEFAULT_COLUMNS,
) -> TextData:
    """Return the data set of a `datasets.Dataset`. Raises `InputError` for columns and rows that cannot be used."""
    read = {name: tables.of_dataset(rows, columns.wanted)}
    return _from_tables(name, read, Faults(), seed, limit, shares, columns)


def _from_tables(
    name: str,
    read: Mapping[str, Table],
    faults: Faults,
    seed: int,
    limit: int | None,
    shares: Shares,
    columns: Columns,
) -> TextData:
    """Return the rows of tables, by their paths, one after the other. `faults`: rows that could not be read."""
    label, first, second = columns.choose(
        list(dict.fromkeys(chain.from_iterable(table.names for table in read.values())))
    )
    chosen = [label, first, *([second] if second else [])]
    values, *texts = _joined(read, chosen, faults, columns.regression)
    if not values:
        raise InputError("data", f"{', '.join(read)} without rows", "a table with rows")
    labels: NDArray[Any]
    classes: tuple[str, ...]
    if columns.regression:
        labels, classes = np.array([float(value) for value in values]), ()
    else:
        names = next(iter(read.values())).classes.get(label, ())
        labels, classes = classes_of(values, names)
        if not names and len(classes) > len(labels) / 2:
            wanted = "classes of several rows each, or numbers with columns.regression = true"
            raise InputError("label", f"of {len(classes):,} classes in {len(labels):,} rows", wanted)
    divided = cut(split(len(values), seed, shares.test, shares.profiling), limit)
    return assemble(name, texts[0], texts[1] if second else None, labels, classes, divided)


def _joined(read: Mapping[str, Table], chosen: Sequence[str], faults: Faults, regression: bool) -> list[list[Any]]:
    """Return columns, that of labels first. Raises `InputError` for a file without one, and for rows that cannot be used."""
    joined: list[list[Any]] = [[] for _ in chosen]
    known = {table.classes.get(chosen[0], ()) for table in read.values()}
    if len(known) > 1:
        raise InputError("data", f"{', '.join(read)} with different classes", "files of the same classes")
    names = known.pop()
    for path, table in read.items():
        if lacking := [column for column in chosen if column not in table.columns]:
            raise InputError("column", lacking[0], f"one of those of {path}: {', '.join(table.names)}")
        cells = [table.columns[column] for column in chosen]
        for row, (label, *texts) in enumerate(zip(*cells, strict=True)):
            reasons = [label_fault(label, names, regression), *map(text_fault, texts)]
            if any(reasons):
                place = table.place(row) if len(read) == 1 else f"{path}, {table.place(row)}"
                faults.add(place, ", ".join(filter(None, reasons)))
        for column, added in zip(joined, cells, strict=True):
            column += added
    faults.check("data", f"{', '.join(read)} ", "rows", VALID)
    return joined


def _only(
    content: str, names: Sequence[str], candidates: Sequence[Sequence[str]], usual: Sequence[str]
) -> Sequence[str]:
    if not candidates:
        wanted = f"one of {', '.join(usual)}, or named by columns.{content}"
        raise InputError(f"the {content} column", ", ".join(names), wanted)
    if len(candidates) > 1:
        several = " or ".join(" and ".join(each) for each in candidates)
        raise InputError(f"the {content} column", f"{several} of {', '.join(names)}", f"named by columns.{content}")
    return candidates[0]
