"""Prompts to observe a generator by, from a file or the hub: a data set's questions, without its answers. Knows no model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pliant.errors import InputError, OfflineError

SCHEMES = ("parquet", "json", "csv")
COLUMNS = ("prompt", "instruction", "question", "text", "sentence")
MORE = "input"
"""Beside an instruction, what it is about; it follows on a line of its own."""


def load(address: str) -> tuple[str, tuple[str, ...]]:
    """A name and the prompts of `parquet:PATH`, `json:PATH`, `csv:PATH` or `hub:NAME[:PART]`, without empty ones.

    They are in the first of COLUMNS that is there. Raises `InputError`, `OfflineError`.
    """
    scheme, _, rest = address.partition(":")
    if not rest or scheme not in (*SCHEMES, "hub"):
        raise InputError("prompts", address, "docstrings, parquet:PATH, json:PATH, csv:PATH or hub:NAME[:PART]")
    rows = _fetch(rest) if scheme == "hub" else _read(scheme, Path(rest))
    column = next((name for name in COLUMNS if name in rows.column_names), None)
    if column is None:
        raise InputError("the columns", ", ".join(rows.column_names), f"such that one is {' or '.join(COLUMNS)}")
    more = rows[MORE] if column == "instruction" and MORE in rows.column_names else [""] * len(rows)
    asked = [_prompt(ask, given, row) for row, (ask, given) in enumerate(zip(rows[column], more, strict=True))]
    label = rest if scheme == "hub" else Path(rest).stem
    return re.sub(r"[^\w.-]", "-", label.rsplit("/", 1)[-1]), tuple(one for one in asked if one.strip())


def _prompt(ask: Any, given: Any, row: int) -> str:
    if not isinstance(ask, str | None) or not isinstance(given, str | None):
        raise InputError(f"the prompt of row {row}", repr(ask)[:60], "a text")
    return "\n".join(part for part in (ask, given) if part)


def _read(scheme: str, path: Path) -> Any:
    import datasets

    if not path.is_file():
        raise InputError("prompts", path, f"an existing {scheme} file")
    try:
        return datasets.load_dataset(scheme, split="train", data_files=[str(path)])
    except Exception as error:  # its readers pass on whatever they meet
        raise InputError("prompts", path, f"a readable {scheme} file ({type(error).__name__}: {error})") from error


def _fetch(name: str) -> Any:
    import datasets

    name, _, part = name.partition(":")
    try:
        return datasets.load_dataset(name, part or None, split="train")
    except Exception as error:
        raise OfflineError(
            f"the data set {name} could not be fetched from the hub ({type(error).__name__}); without a network use a local "
            "file (parquet:PATH, json:PATH, csv:PATH) or the embedded corpus (docstrings)"
        ) from error
