"""Writes and reads the journal of a running engine: every step's input and plan (pliant/packing/scheduling/journal.py)."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from pathlib import Path

from pliant.packing.scheduling.journal import Journal, decode, encode
from pliant.packing.scheduling.request import StepInput, StepPlan
from pliant.serving.journal import FileRecorder, run_lines


def recorder(path: Path) -> Callable[[float, StepInput, StepPlan], None]:
    """Return what writes entries to the file until the process ends; the journal of a former run is kept.

    Raises `InputError` where the file cannot be made.
    """
    file = FileRecorder(path, lambda entry: encode(*entry))
    atexit.register(file.close)
    return lambda now, step_input, plan: file((now, step_input, plan))


def read(path: Path) -> Journal:
    """Return all complete entries of a run, also of the files that it continues.

    An incomplete last line, left by a killed process, is skipped. Raises `InputError`.
    """
    return [decode(line) for _, _, line in run_lines(path)]
