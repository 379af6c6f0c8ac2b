"""The journal of a live engine in a file: its scheduler's rounds and decisions (pliant/packing/scheduling/journal.py)."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path

from pliant.errors import InputError
from pliant.packing.scheduling.journal import Entry, Journal, decode, encode
from pliant.packing.scheduling.request import StepInput, StepPlan
from serving.journal import FileRecorder


def recorder(path: Path) -> Callable[[float, StepInput, StepPlan], None]:
    """Replaces the journal of a former run, and is closed with the process. Raises `InputError` where it cannot be made."""
    file = FileRecorder(path, _line)
    atexit.register(file.close)
    return lambda now, round, decision: file((now, round, decision))


def read(path: Path) -> Journal:
    """All whole entries: a killed process leaves a last line without its end. Raises `InputError`."""
    try:
        whole, _, _truncated = path.read_text(encoding="utf-8").rpartition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("journal", path, f"a file that can be read ({error})") from None
    return [decode(line) for line in whole.split("\n") if line]


def _line(entry: Entry) -> str:
    return encode(*entry)
