"""Appends labels to a file of lines that is bounded in size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pliant.lines import append_whole
from pliant.outcomes.files import LABELS, OLDER

MAX_BYTES = 16 << 20  # of the file, at which the next one begins; some 50,000 labels. One older file is kept.


class LabelFile:
    """The file of labels in a folder. One process writes it (serving/outcomes/store.py has the lock)."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._older, self._max_bytes = folder / LABELS, folder / OLDER, max_bytes

    def append(self, lines: Sequence[str]) -> None:
        """Append whole lines, all or none. Raises `OSError`."""
        if not lines:
            return
        if append_whole(self._path, "".join(f"{line}\n" for line in lines).encode()) > self._max_bytes:
            self._path.replace(self._older)
