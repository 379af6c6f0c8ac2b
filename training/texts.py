"""Labelled texts by address: parquet, CSV or JSON files, data sets of the hub, or the embedded corpus.

Rows are read as they are written (training/tables.py), and a label is a text, unless labels are called numbers. The embedded
corpus is in training/docstrings.py. Texts without labels are read from files alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.training import groups, tables
from pliant.training.data import cut, fetch_rows, split
from pliant.training.tables import Faults, Table, classes_of, label_fault, text_fault
from pliant.training.text_data import Shares, TextData, assemble

LABELS = ("label", "labels", "intent", "scenario", "score", "target")
PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("text1", "text2"), ("text", "text2")),
)
SINGLES = ("text", "sentence", "question", "utterance")
USUAL_TEXTS = frozenset((*SINGLES, *chain.from_iterable(PAIRS)))
VALID = (
    "whole rows, with texts that are not empty and with labels that are texts or whole numbers "
    "(any numbers with columns.regression = true)"
)
VALID_TEXTS = "whole rows, with texts that are not empty"


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
    def wanted_texts(self) -> frozenset[str]:
        """Return the names of all columns that may be chosen for texts."""
        return USUAL_TEXTS | {name for name in (self.text, self.second) if name is not None}

    @property
    def wanted(self) -> frozenset[str]:
        """Return the names of all columns that may be chosen."""
        return self.wanted_texts | {*LABELS, *filter(None, [self.label])}

    def choose(self, names: Sequence[str]) -> tuple[str, str, str | None]:
        """Return the columns of labels, of texts and of second texts.

        Raises `InputError` for one that is missing, and for several that it might be.
        """
        self._check(names, self.text, self.second, self.label)
        label = self.label or _only("label", names, [(name,) for name in LABELS if name in names], LABELS)[0]
        return label, *self.choose_texts(names)

    def choose_texts(self, names: Sequence[str]) -> tuple[str, str | None]:
        """Return the columns of texts and of second texts. Raises `InputError` as `choose` does."""
        self._check(names, self.text, self.second)
        if self.text is not None:
            return self.text, self.second
        pairs = [pair for pair in PAIRS if set(pair) <= set(names)]  # "sentence" may be the second text of a "question"
        singles = [(name,) for name in SINGLES if name in set(names) - set(chain.from_iterable(pairs))]
        first, *second = _only("text", names, [*pairs, *singles], SINGLES)
        return first, second[0] if second else None

    def _check(self, names: Sequence[str], *columns: str | None) -> None:
        for column in columns:
            if column is not None and column not in names:
                raise InputError("column", column, f"one of those that are there: {', '.join(names)}")


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


def load_texts(
    address: str, columns: Columns = DEFAULT_COLUMNS, pair: bool | None = None
) -> list[tuple[str, str | None]]:
    """Return the texts at `parquet:PATH[,PATH]`, `csv:PATH` or `json:PATH`, each with its second one if they are pairs.

    `pair`: whether they have to be; None: they may.
    Labels are not read. Of equal texts the first is kept. Raises `InputError`, which calls the setting texts.
    """
    scheme, _, rest = address.partition(":")
    if scheme not in tables.SCHEMES:
        raise InputError("texts", address, "parquet:PATH, csv:PATH or json:PATH")
    faults = Faults()
    read = {str(path): tables.read(scheme, path, columns.wanted_texts, faults, "texts") for path in tables.paths(rest)}
    first, second = columns.choose_texts(_names(read))
    if pair is not None and (second is not None) != pair:
        kinds = "single texts", "pairs"
        raise InputError("texts", f"{address} of {kinds[not pair]}", f"{kinds[pair]}, as the labelled ones are")
    chosen = [first, *([second] if second else [])]
    texts = _joined(read, chosen, faults, lambda row: map(text_fault, row), "texts", VALID_TEXTS)
    if not texts[0]:
        raise InputError("texts", f"{', '.join(read)} without rows", "a table with rows")
    kept = groups.firsts(groups.of_texts(*texts))
    return [(texts[0][row], texts[1][row] if second else None) for row in kept]


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
    label, first, second = columns.choose(_names(read))
    chosen = [label, first, *([second] if second else [])]
    known = {table.classes.get(label, ()) for table in read.values()}
    if len(known) > 1:
        raise InputError("data", f"{', '.join(read)} with different classes", "files of the same classes")
    names = known.pop()

    def reasons(row: Sequence[Any]) -> Iterable[str]:
        return label_fault(row[0], names, columns.regression), *map(text_fault, row[1:])

    values, *texts = _joined(read, chosen, faults, reasons, "data", VALID)
    if not values:
        raise InputError("data", f"{', '.join(read)} without rows", "a table with rows")
    labels: NDArray[Any]
    classes: tuple[str, ...]
    if columns.regression:
        labels, classes = np.array([float(value) for value in values]), ()
    else:
        labels, classes = classes_of(values, names)
        if not names and len(classes) > len(labels) / 2:
            wanted = "classes of several rows each, or numbers with columns.regression = true"
            raise InputError("label", f"of {len(classes):,} classes in {len(labels):,} rows", wanted)
    divided = cut(split(len(values), seed, shares.test, shares.profiling), limit)
    return assemble(name, texts[0], texts[1] if second else None, labels, classes, divided)


def _names(read: Mapping[str, Table]) -> list[str]:
    """Return the names of the columns of all tables."""
    return list(dict.fromkeys(chain.from_iterable(table.names for table in read.values())))


def _joined(
    read: Mapping[str, Table],
    chosen: Sequence[str],
    faults: Faults,
    reasons: Callable[[Sequence[Any]], Iterable[str]],
    field: str,
    valid: str,
) -> list[list[Any]]:
    """Return the chosen columns of tables. `reasons`: why a row of these cannot be used; empty ones are none.

    Raises `InputError` for a file without one of the columns, and for rows that cannot be used.
    """
    joined: list[list[Any]] = [[] for _ in chosen]
    for path, table in read.items():
        if lacking := [column for column in chosen if column not in table.columns]:
            raise InputError("column", lacking[0], f"one of those of {path}: {', '.join(table.names)}")
        cells = [table.columns[column] for column in chosen]
        for number, row in enumerate(zip(*cells, strict=True)):
            if reason := ", ".join(filter(None, reasons(row))):
                place = table.place(number) if len(read) == 1 else f"{path}, {table.place(number)}"
                faults.add(place, reason)
        for column, added in zip(joined, cells, strict=True):
            column += added
    faults.check(field, f"{', '.join(read)} ", "rows", valid)
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
