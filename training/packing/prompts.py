"""Reads prompts to observe a generator with: a data set's questions, from a file or the hub. Knows no model."""

from __future__ import annotations

import re
from pathlib import Path

from pliant.errors import InputError
from pliant.training.data import fetch_rows
from pliant.training.tables import SCHEMES, Faults, of_dataset, read, text_fault

COLUMNS = ("prompt", "instruction", "question", "text", "sentence")
MORE = "input"
"""The column with the matter of an instruction, which follows it on a line of its own."""


def load(address: str, column: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Return a name, and the prompts of `parquet:PATH`, `json:PATH`, `csv:PATH` or `hub:NAME[:PART]` but empty ones.

    They are read from the column of this name, by default from the first of COLUMNS that exists. Raises `InputError`, and
    `OfflineError` for a failed download.
    """
    scheme, _, rest = address.partition(":")
    if not rest or scheme not in (*SCHEMES, "hub"):
        raise InputError("prompts", address, "docstrings, parquet:PATH, json:PATH, csv:PATH or hub:NAME[:PART]")
    usual, faults = (column,) if column else COLUMNS, Faults()
    wanted = {*usual, MORE}
    is_hub = scheme == "hub"
    if is_hub:
        name, _, part = rest.partition(":")
        works = "a local file (parquet:PATH, json:PATH, csv:PATH) or the embedded corpus (docstrings)"
        table = of_dataset(fetch_rows(name, part or None, works), wanted)
    else:
        table = read(scheme, Path(rest), wanted, faults, "prompts")
    chosen = next((name for name in usual if name in table.names), None)
    if chosen is None:
        raise InputError("the columns", ", ".join(table.names), f"such that one is {' or '.join(usual)}")
    first_R = table.columns[chosen]
    more_R = table.columns[MORE] if chosen == "instruction" and MORE in table.names else [""] * len(first_R)
    for row, cells in enumerate(zip(first_R, more_R, strict=True)):
        there = [cell for cell in cells if cell is not None and not (isinstance(cell, str) and not cell.strip())]
        if reasons := [reason for reason in map(text_fault, there) if reason]:
            faults.add(table.place(row), ", ".join(reasons))
    label = rest if is_hub else Path(rest).stem
    faults.check("prompts", f"{rest} ", "rows", "texts")
    prompts = ("\n".join(filter(None, cells)) for cells in zip(first_R, more_R, strict=True))
    return re.sub(r"[^\w.-]", "-", label.rsplit("/", 1)[-1]), tuple(prompt for prompt in prompts if prompt.strip())
