"""What a service leaves of outcomes below PLIANT_HOME/outcomes/SYSTEM, for whoever learns from it.

`labels.jsonl` (and `labels.jsonl.1`, the older ones) holds the labels, see pliant/outcomes/labels.py: no words, no pictures.
`inputs.db` holds what people wrote or sent, and exists only if a service had the setting `keep_inputs`; `forget` removes it.
`outcomes.db` is the service's own (serving/loop/outcome_store.py).
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.errors import InputError
from pliant.jsonl import Torn, blank_lines, complete_lines
from pliant.outcomes.labels import LabelRecord, record_of

LABELS = "labels.jsonl"
OLDER = "labels.jsonl.1"
INPUTS = "inputs.db"
OBSERVED = "observed"  # folder of the prompts that packing observed, below PLIANT_HOME
BUSY_SECONDS = 10.0  # that a reader waits for a service's transaction, which takes some milliseconds


@dataclass(frozen=True, slots=True)
class KeptInput:
    """What was sent for one answer. `form` says how to read `content`."""

    id: str  # of the answer
    task: str
    at: float  # seconds since 1970
    form: str  # "json": a list of the texts; "uint8 H W 3": pixels, row by row
    content: bytes


def folder_of(home: Path, system: str) -> Path:
    """Return the folder of a system's outcomes."""
    return home / "outcomes" / system


def observed_path(home: Path, model: str) -> Path:
    """Return the file of the lengths that a service of packing observes of a model."""
    return home / OBSERVED / f"{model}.jsonl"


def read_labels(folder: Path, since: float = 0.0) -> list[LabelRecord]:
    """Return the labels reported at or after `since` (seconds since 1970), in the order in which they came.

    Lines that are none are passed over, and the log says how many. Raises `InputError` for a file that cannot be read.
    """
    records: list[LabelRecord] = []
    for path in (folder / OLDER, folder / LABELS):
        if not path.is_file():
            continue
        torn = Torn(path)
        for number, line in enumerate(complete_lines(path, "labels"), start=1):
            with torn.pass_over(number):
                records.append(record_of(line))
        torn.report("labels")
    return [record for record in records if record.at >= since]


def read_inputs(folder: Path, ids: Collection[str] | None = None) -> Iterator[KeptInput]:
    """Yield the inputs that are kept, the oldest first; with `ids` those of these answers alone.

    Raises `InputError` for a file that cannot be read.
    """
    for id, *values in _rows(folder, "id, task, at, form, content"):
        if ids is None or id in ids:
            yield KeptInput(id, *values)


def input_ids(folder: Path) -> list[str]:
    """Return the ids of the answers whose inputs are kept, the oldest first.

    Raises `InputError` for a file that cannot be read.
    """
    return [id for (id,) in _rows(folder, "id")]


def _rows(folder: Path, columns: str) -> Iterator[tuple[Any, ...]]:
    path = folder / INPUTS
    if not path.is_file():
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)) as base:
            yield from base.execute(f"SELECT {columns} FROM inputs ORDER BY sequence")
    except sqlite3.Error as error:
        raise InputError("inputs", path, f"a file that can be read ({error})") from None


def prompt_of(line: bytes) -> Mapping[str, Any]:
    """Return what a line of observed prompts holds (serving/packing/engine/observed.py); nothing if it is none."""
    try:
        content = json.loads(line)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def forget_prompts(folder: Path, meant: Callable[[Mapping[str, Any]], bool]) -> int:
    """Overwrite the observed prompts that are meant, of all models, and return how many. A service may be running.

    Raises `InputError` for a file that cannot be changed.
    """
    try:
        return sum(blank_lines(path, lambda line: meant(prompt_of(line))) for path in sorted(folder.glob("*.jsonl")))
    except OSError as error:
        raise InputError("prompts", folder, f"a folder of files that can be changed ({error})") from None


def forget(folder: Path, ids: Collection[str] | None = None, before: float = math.inf) -> int:
    """Remove the inputs of these answers, None: of all, and return how many there were. A service may be running.

    `before`: only those that were kept before this time, in seconds since 1970. The bytes are overwritten. Raises
    `InputError` for a file that cannot be changed.
    """
    path = folder / INPUTS
    if not path.is_file():
        return 0
    try:
        with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as base:
            base.execute("PRAGMA secure_delete = ON")
            if ids is None:
                count = base.execute("DELETE FROM inputs WHERE at < ?", (before,)).rowcount
            else:
                delete = "DELETE FROM inputs WHERE id = ? AND at < ?"
                count = sum(base.execute(delete, (id, before)).rowcount for id in ids)
            base.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # what was deleted is still in the log of writes
    except sqlite3.Error as error:
        raise InputError("inputs", path, f"a file that can be changed ({error})") from None
    return count
