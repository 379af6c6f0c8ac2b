"""Journals in files: a recorder that never stops the service, and a reader that bears a truncated last line.

Knows files and pliant/journal.py; knows nothing of schedulers. Where writing fails, recording ends, and the log says so
once: a journal with a hole in it could not be replayed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from pliant.errors import InputError
from pliant.journal import decode, encode
from pliant.protocol import Journal, JournalEntry

BUFFER_BYTES = 1 << 16
FLUSH_SECONDS = 1.0

logger = logging.getLogger("pliant.serving")


class FileRecorder:
    """Writes entries to a file, replacing one of a former run; call it with each. A killed process loses the last second.

    Buffered, and flushed with the first entry that comes a second after the last flush.
    """

    def __init__(self, path: Path, line: Callable[[Any], str] = encode) -> None:
        """`line`: of one entry. Raises `InputError` where the file cannot be made, before anything is served."""
        self._path, self._line = path, line
        self._flushed = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO | None = path.open("w", buffering=BUFFER_BYTES, encoding="utf-8")
        except OSError as error:
            raise InputError("journal", path, f"a file that can be written ({error.strerror})") from None

    def __call__(self, entry: Any) -> None:
        if self._file is None:
            return
        try:
            self._file.write(self._line(entry) + "\n")
            self._flush_now_and_then(self._file)
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self._give_up(error)
        self._file = None

    def _flush_now_and_then(self, file: TextIO) -> None:
        now = time.monotonic()
        if now - self._flushed > FLUSH_SECONDS:
            self._flushed = now
            file.flush()

    def _give_up(self, error: OSError) -> None:
        """The file is not closed here: closing would try to write the rest once more, and fail once more."""
        logger.error("the journal %s ends here: %s; serving goes on", self._path, error.strerror)
        self._file = None


def read(path: Path) -> Journal:
    """All whole entries. A last line without its end is what a killed process leaves, and is passed over.

    Raises `InputError` naming the line number for any other line that is no entry, and for a file that is not there.
    """
    try:
        whole, _, _truncated = path.read_text(encoding="utf-8").rpartition("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("journal", path, f"a file that can be read ({error})") from None
    lines = whole.split("\n") if whole else []
    return [_decode(line, path, number) for number, line in enumerate(lines, start=1)]


def _decode(line: str, path: Path, number: int) -> JournalEntry:
    try:
        return decode(line)
    except InputError as error:
        raise InputError(f"line {number} of {path.name}", error.value, "a journal entry") from None
