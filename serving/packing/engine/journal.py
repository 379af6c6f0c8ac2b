"""Writes and reads the journal of a running engine: every step's input and plan (pliant/packing/scheduling/journal.py)."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path

from pliant.errors import InputError
from pliant.packing.scheduling.journal import Journal, decode, encode
from pliant.packing.scheduling.request import StepInput, StepPlan
from serving.journal import FileRecorder


def recorder(path: Path) -> Callable[[float, StepInput, StepPlan], None]:
    """Return what writes entries to the file until the process ends; the journal of a former run is kept.

    Raises `InputError` where the file cannot be made.
    """
    file = FileRecorder(path, lambda entry: encode(*entry))
    atexit.register(file.close)
    return lambda now, step_input, plan: file((now, step_input, plan))


def read(path: Path) -> Journal:
    """Return all complete entries. An incomplete last line, left by a killed process, is skipped. Raises `InputError`."""
    try:
        whole, _, _truncated = path.read_text(encoding="utf-8").rpartition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("journal", path, f"a file that can be read ({error})") from None
    return [decode(line) for line in whole.split("\n") if line]
