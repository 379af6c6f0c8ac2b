"""Local tables in CSV, JSON and parquet, read as they are written: nothing is guessed, renamed, repaired or kept for later.

Every value of CSV is a text. JSON and parquet keep their types; a number of JSON keeps its digits. A row that cannot be
used is a fault: all those of a table are reported together, before anything is trained. Here is also what may be a text or
a label of a row, and the classes that labels are: texts, unless they are called numbers.
"""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError

SURROGATE = re.compile("[\ud800-\udfff]")
RAW = re.compile("[\udc80-\udcff]")  # a byte that was read with `surrogateescape`
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"0|-?[1-9]\d{0,17}", re.ASCII)  # without leading zeros
HIDDEN = "below 0 (a test split without its labels?)"
SCHEMES = ("parquet", "csv", "json")
MOST_ROWS = 10_000_000  # of a table, as its texts and labels are held in memory
LONGEST = 2**24  # characters of a field of CSV
NAMED = 10  # faults that an error names
SIGNATURES = {
    codecs.BOM_UTF16_LE: "UTF-16: save it as UTF-8",
    codecs.BOM_UTF16_BE: "UTF-16: save it as UTF-8",
    b"\x1f\x8b": "compressed: unpack it",
    b"PK\x03\x04": "an archive or a workbook: save it as CSV",
    b"PAR1": "parquet: use parquet:PATH",
}
"""The first bytes of files that are taken for CSV or JSON and are neither."""
SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}  # of what is taken for CSV
VALID = {
    "csv": "a readable csv file (UTF-8, fields separated by commas, a header, as many fields in each row)",
    "json": "a readable json file (UTF-8, an object in each line, or one list of objects)",
    "parquet": "a readable parquet file",
}


class Number(str):
    """A number of JSON as it is written. It is no text, but may be a label."""


class Faults:
    """Rows or files that cannot be used: the first ones with reasons, and how many there are."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._count = 0

    def add(self, place: str, reason: str) -> None:
        self._count += 1
        if self._count <= NAMED:
            self._first.append(f"{place} ({reason})")

    def check(self, field: str, prefix: str, what: str, valid: str) -> None:
        """Raise `InputError` where there are any. `what`: rows or files."""
        if self._count:
            rest = f" and {self._count - NAMED:,} more" if self._count > NAMED else ""
            raise InputError(
                field, f"{prefix}with {self._count:,} broken {what}: {'; '.join(self._first)}{rest}", valid
            )


@dataclass(frozen=True, slots=True)
class Table:
    """`names`: of all columns; `columns`: the values of those that were wanted.

    `classes`: what the numbers of a column stand for. `numbers`: of rows or lines (`unit`), as a person counts them; None:
    from 0.
    """

    names: tuple[str, ...]
    columns: Mapping[str, Sequence[Any]]
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: Sequence[int] | None = None
    unit: str = "row"

    def place(self, row: int) -> str:
        """Return what a refusal calls a row: the line of the file in which it begins, or its number."""
        return f"{self.unit} {row if self.numbers is None else self.numbers[row]}"


def paths(rest: str) -> list[Path]:
    """Return the files of `PATH[,PATH]`. A comma belongs to a name where there is a file of that name."""
    parts, files = rest.split(","), []
    while parts:
        names = [",".join(parts[:end]) for end in range(len(parts), 0, -1)]
        name = next(filter(os.path.isfile, names), names[0])
        files.append(Path(name))
        parts = parts[name.count(",") + 1 :]
    return files


def read(scheme: str, path: Path, wanted: Collection[str], faults: Faults, setting: str = "data") -> Table:
    """Return a table with those of the `wanted` columns that it has. Rows that cannot be read are left to `faults`.

    Raises `InputError`, which names the `setting`, for a file that cannot be read or has too many rows.
    """
    reader = {"csv": _csv, "json": _json, "parquet": _parquet}[scheme]
    try:
        table = reader(path, wanted, faults)
        if not table.names:
            faults.check(setting, f"{path} ", "rows", VALID[scheme])
            raise ValueError("empty")
    except (OSError, ValueError) as error:
        raise InputError(setting, f"{path} ({cause(error)})", VALID[scheme]) from None
    return table


def of_dataset(rows: Any, wanted: Collection[str]) -> Table:
    """Return the wanted columns of a `datasets.Dataset`. Raises `InputError` for too many rows."""
    if len(rows) > MOST_ROWS:
        raise InputError("data", f"of {len(rows):,} rows", f"of at most {MOST_ROWS:,}")
    columns = {name: rows[name][:] for name in rows.column_names if name in wanted}
    return Table(tuple(rows.column_names), columns, _classes(rows.features))


def cause(error: BaseException) -> str:
    """Return in one line what an error began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.strip().partition("\n")[0] or type(error).__name__


def _csv(path: Path, wanted: Collection[str], faults: Faults) -> Table:
    _start(path)
    csv.field_size_limit(LONGEST)
    with _open(path, newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
        except csv.Error as error:
            raise ValueError(f"its header: {error}") from None
        for separator, name in SEPARATORS.items():
            if len(header) == 1 and separator in header[0]:
                raise ValueError(f"fields separated by {name}")
        _check_names(header)
        kept = [(place, name) for place, name in enumerate(header) if name in wanted]
        columns: dict[str, list[str]] = {name: [] for _, name in kept}
        lines = array("q")
        for line, row in _rows(reader, faults):
            if len(row) != len(header):
                faults.add(f"line {line}", f"{len(row)} fields in place of {len(header)}")
                continue
            _count(lines, line)
            for place, name in kept:
                columns[name].append(row[place])
    return Table(tuple(header), columns, {}, lines, "line")


def _rows(reader: Any, faults: Faults) -> Iterator[tuple[int, list[str]]]:
    """Yield the line in which each row begins, and the row, but not empty lines."""
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            faults.add(f"line {line}", str(error))
            continue
        if row:
            yield line, row


def _json(path: Path, wanted: Collection[str], faults: Faults) -> Table:
    listed = _start(path).lstrip(codecs.BOM_UTF8 + b" \t\r\n").startswith(b"[")
    unit, names, numbers = "row" if listed else "line", dict[str, None](), array("q")
    columns: dict[str, list[Any]] = {}
    with _open(path, newline="\n") as file:
        for number, row in enumerate(_decode(file.read())) if listed else _lines(file, faults):
            if not isinstance(row, dict):
                faults.add(f"{unit} {number}", "no object")
                continue
            for name in row.keys() - names.keys():
                if name in wanted:
                    columns[name] = [None] * len(numbers)
            names |= dict.fromkeys(row)
            _count(numbers, number)
            for name, column in columns.items():
                column.append(row.get(name))
    return Table(tuple(names), columns, {}, numbers, unit)


def _lines(file: TextIO, faults: Faults) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield number, _decode(line)
            except json.JSONDecodeError as error:
                faults.add(f"line {number}", f"{error.msg} at character {error.pos + 1}")
            except ValueError as error:
                faults.add(f"line {number}", str(error))


def _decode(text: str) -> Any:
    try:
        return DECODER.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _check_names([name for name, _ in pairs])
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=Number, parse_int=Number, parse_constant=_no_constant)


def _parquet(path: Path, wanted: Collection[str], _faults: Faults) -> Table:
    import datasets
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with path.open("rb") as file:
            stored = ParquetFile(file)
            names = stored.schema_arrow.names
            _check_names(names)
            _check_count(stored.metadata.num_rows)
            table = stored.read(columns=[name for name in names if name in wanted])
    except pyarrow.ArrowException as error:
        raise ValueError(cause(error)) from None
    columns = {}
    for name in table.column_names:
        try:
            columns[name] = list(table[name].to_pylist())
        except UnicodeDecodeError:  # as _open reads such bytes
            cells = table[name].cast("binary").to_pylist()
            columns[name] = [value and value.decode(errors="surrogateescape") for value in cells]
    return Table(tuple(names), columns, _classes(datasets.Features.from_arrow_schema(table.schema)))


def _classes(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(feature.names) for name, feature in features.items() if hasattr(feature, "names")}


def _open(path: Path, newline: str) -> TextIO:
    """Open a file of UTF-8. Other bytes become halves of surrogate pairs, which no text may hold."""
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline)


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(64)
    for signature, kind in SIGNATURES.items():
        if start.startswith(signature):
            raise ValueError(kind)
    return start


def _check_names(names: Sequence[str]) -> None:
    joined = "".join(names)
    if "\0" in joined or (not joined.isascii() and SURROGATE.search(joined)):
        raise ValueError("a name that is not UTF-8")
    if len(set(names)) < len(names):
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is there twice")


def _check_count(count: int) -> None:
    if count > MOST_ROWS:
        raise ValueError(f"more than {MOST_ROWS:,} rows: take a part of them")


def _count(numbers: array[int], number: int) -> None:
    numbers.append(number)
    _check_count(len(numbers))


def text_fault(value: Any) -> str:
    """Return why a value can be no text; empty: it can."""
    if value is None:
        return "no text"
    if type(value) is not str:
        return f"{ascii(str(value))[:80]} is no text"
    if not value.strip():
        return "an empty text"
    if value.isascii() or not (half := SURROGATE.search(value)):
        return ""
    if RAW.fullmatch(half[0]):
        return f"the byte 0x{ord(half[0]) & 0xFF:x} is not UTF-8"
    return "half of a surrogate pair"


def label_fault(value: Any, names: Sequence[str], regression: bool) -> str:
    """Return why a value can be no label; empty: it can. `names`: what the numbers of the column stand for, if anything."""
    if value is None or value == "":
        return "no label"
    if names and not regression:
        return "" if 0 <= value < len(names) else f"label {value} is {HIDDEN if value < 0 else 'of no class'}"
    if regression:
        number = NUMBER.fullmatch(str(value)) and not isinstance(value, bool) and math.isfinite(float(value))
        return "" if number else f"label {ascii(str(value))[:80]} is no finite number"
    if isinstance(value, float):
        return f"label {value} is a fraction"
    if not isinstance(value, str | int):
        return f"label {ascii(str(value))[:80]} is no text and no whole number"
    return text_fault(str(value)).replace("an empty text", "no label")


def classes_of(values: Sequence[Any], names: Sequence[str] = ()) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the numbers of sound labels, and their classes: the `names` that numbers stand for, or the labels as written.

    Whole numbers are in their order, if all are, else texts in theirs. True and false are called as in JSON.
    """
    if names:
        return np.asarray(values, dtype=np.int64), tuple(names)
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    distinct = set(texts)
    classes = sorted(distinct, key=int if all(map(WHOLE.fullmatch, distinct)) else None)
    number_of = {text: number for number, text in enumerate(classes)}
    return np.array([number_of[text] for text in texts], dtype=np.int64), tuple(classes)
