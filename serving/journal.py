"""Journals in files: a recorder that never stops the service, and a reader that accepts a truncated last line.

If writing fails, recording ends and the log says so once: a journal with a gap could not be replayed. No journal is ever
overwritten.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from pliant.errors import InputError
from pliant.journal import decode, encode
from pliant.protocol import Journal, JournalEntry

BUFFER_BYTES = 1 << 16
FLUSH_SECONDS = 1.0

logger = logging.getLogger("pliant.serving")


class FileRecorder:
    """Writes entries to a file; call it with each. A killed process loses the last second.

    The file of a former run is kept: it is renamed by a number behind its name, `journal.jsonl.1`, then `.2` and so on.
    Writes are buffered and flushed about once a second.
    """

    def __init__(self, path: Path, line: Callable[[Any], str] = encode) -> None:
        """`line` writes one entry as text. Raises `InputError` if the file cannot be made."""
        self._path, self._line = path, line
        self._flushed = time.monotonic()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _keep_former(path)
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
        """Stop recording. The file is not closed: closing would try to write the rest again, and fail again."""
        logger.error("the journal %s ends here: %s; serving goes on", self._path, error.strerror)
        self._file = None


def _keep_former(path: Path) -> None:
    """Rename a file that has something in it: a journal replays from its first entry, so runs are not mixed in one."""
    if path.is_file() and path.stat().st_size:
        former = next(name for number in count(1) if not (name := path.with_name(f"{path.name}.{number}")).exists())
        path.rename(former)
        logger.warning("the journal of a former run, %s, is kept as %s", path, former)


def read(path: Path) -> Journal:
    """Return all complete entries. A last line without its end, as a killed process leaves it, is skipped.

    Raises `InputError` for a file that cannot be read, and for any other line that is no entry (with its number).
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
