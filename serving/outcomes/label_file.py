"""Appends labels to a file of lines that is bounded in size."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pliant.lines import open_to_append
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
        with open_to_append(self._path) as file:
            file.flush()  # the end of a line that a killed process left torn
            descriptor = file.fileno()
            size = os.fstat(descriptor).st_size
            left = memoryview("".join(f"{line}\n" for line in lines).encode())
            try:
                while left:
                    left = left[os.write(descriptor, left) :]
            except OSError:  # of a full disk, some bytes may have been written
                os.ftruncate(descriptor, size)
                raise
            size = os.fstat(descriptor).st_size
        if size > self._max_bytes:
            self._path.replace(self._older)
