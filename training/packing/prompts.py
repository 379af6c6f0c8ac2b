"""Reads prompts to observe a generator with: a data set's questions, from a file or the hub. Knows no model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pliant.errors import InputError
from training.data import fetch_rows, read_rows

SCHEMES = ("parquet", "json", "csv")
COLUMNS = ("prompt", "instruction", "question", "text", "sentence")
MORE = "input"
"""The column with the matter of an instruction, which follows it on a line of its own."""


def load(address: str) -> tuple[str, tuple[str, ...]]:
    """Return a name, and the prompts of `parquet:PATH`, `json:PATH`, `csv:PATH` or `hub:NAME[:PART]` but empty ones.

    They are read from the first of COLUMNS that exists. Raises `InputError`, and `OfflineError` for a failed download.
    """
    scheme, _, rest = address.partition(":")
    if not rest or scheme not in (*SCHEMES, "hub"):
        raise InputError("prompts", address, "docstrings, parquet:PATH, json:PATH, csv:PATH or hub:NAME[:PART]")
    rows = _fetch(rest) if scheme == "hub" else _read(scheme, Path(rest))
    column = next((name for name in COLUMNS if name in rows.column_names), None)
    if column is None:
        raise InputError("the columns", ", ".join(rows.column_names), f"such that one is {' or '.join(COLUMNS)}")
    more = rows[MORE] if column == "instruction" and MORE in rows.column_names else [""] * len(rows)
    prompts = [
        _prompt(question, given, row) for row, (question, given) in enumerate(zip(rows[column], more, strict=True))
    ]
    label = rest if scheme == "hub" else Path(rest).stem
    return re.sub(r"[^\w.-]", "-", label.rsplit("/", 1)[-1]), tuple(prompt for prompt in prompts if prompt.strip())


def _prompt(question: Any, given: Any, row: int) -> str:
    if not isinstance(question, str | None) or not isinstance(given, str | None):
        raise InputError(f"the prompt of row {row}", repr(question)[:60], "a text")
    return "\n".join(part for part in (question, given) if part)


def _read(scheme: str, path: Path) -> Any:
    if not path.is_file():
        raise InputError("prompts", path, f"an existing {scheme} file")
    return read_rows(scheme, path, f"a readable {scheme} file", "prompts", data_files=[str(path)])


def _fetch(address: str) -> Any:
    name, _, part = address.partition(":")
    works = "a local file (parquet:PATH, json:PATH, csv:PATH) or the embedded corpus (docstrings)"
    return fetch_rows(name, part or None, works)
