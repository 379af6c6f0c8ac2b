"""Journals in files: a recorder that never stops the service, and a reader that accepts a truncated last line.

A journal that reaches `SEGMENT_BYTES` goes on in a new file; the file of a former run, too, is kept under a number:
`journal.jsonl.1`, then `.2` and so on, `journal.jsonl` being the newest. The oldest are removed, so that all together
stay below `KEPT_BYTES`. If writing fails recording ends, and the log says so once: a journal with a gap could not be
replayed. The first entry of a run has the wall clock beside it (`wall`, seconds since 1970), but for packing's.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from pliant.errors import InputError
from pliant.journal import decode, encode
from pliant.protocol import Arrived, Journal, JournalEntry
from pliant.serving.request_context import REQUEST_ID
from pliant.serving.state_file import FULL, Writing

BUFFER_BYTES = 1 << 16
FLUSH_SECONDS = 1.0
SEGMENT_BYTES = 64 << 20
KEPT_BYTES = 1 << 30
CONTINUES = '{"continues": '
"""Begin of the first line of a file that goes on where the named one ends."""

E = TypeVar("E")

logger = logging.getLogger("pliant.serving")


def named(entry: JournalEntry) -> str:
    """Return the line of an entry; that of an arrival also has the `x-request-id` by which its client knows it."""
    line, name = encode(entry), REQUEST_ID.get()
    return f'{line[:-1]}, "request_id": {json.dumps(name)}}}' if name and isinstance(entry.event, Arrived) else line


class FileRecorder:
    """Writes entries to a file; call it with each. A killed process loses the last second.

    Writes are buffered and flushed about once a second, by a thread if no further entry comes. The file is locked: a
    second service cannot write the same one.
    """

    def __init__(
        self,
        path: Path,
        line: Callable[[Any], str] = named,
        segment_bytes: int = SEGMENT_BYTES,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        """`line` writes one entry as text. Raises `InputError` if the file cannot be made, or another service has it.

        Where the disk is full nothing is recorded: a process that takes the place of one that died must start.
        """
        self._path, self._line, self._segment_bytes, self._kept_bytes = path, line, segment_bytes, kept_bytes
        self._flushed, self._size = time.monotonic(), 0
        self._file: BinaryIO | None = None
        self._writing, self._lock = Writing("journal", path), threading.Lock()
        self._timer: threading.Timer | None = None  # until entries are flushed that no other entry follows
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path, "ab") as former:
                size = former.seek(0, os.SEEK_END) if path.is_file() else 0
                if size:
                    logger.warning("the journal of a former run, %s, is kept as %s", path, _keep(path))
            self._file = _locked(path, "ab")
            _prune(path, kept_bytes)
        except BlockingIOError:
            raise InputError("journal", path, "a file that no other service writes") from None
        except OSError as error:
            if error.errno not in FULL:
                raise InputError("journal", path, f"a file that can be written ({error.strerror})") from None
            self._give_up(error)

    def __call__(self, entry: Any) -> None:
        with self._lock:
            if self._file is None:
                return
            try:
                line = self._line(entry)
                if not self._size and self._line is named:  # packing's readers refuse what they do not know
                    line = f'{{"wall": {time.time():.3f}, {line[1:]}'
                self._write(self._file, line)
                now = time.monotonic()
                if now - self._flushed > FLUSH_SECONDS:
                    self._flushed = now
                    self._file.flush()
                elif self._timer is None:
                    self._timer = threading.Timer(FLUSH_SECONDS, self._flush_late)
                    self._timer.daemon = True
                    self._timer.start()
                if self._size >= self._segment_bytes:  # go on in a new file, which names the full one
                    self._file.flush()
                    former = _keep(self._path)
                    self._file.close()
                    self._file, self._size = _locked(self._path, "ab"), 0
                    self._write(self._file, json.dumps({"continues": former.name}))
                    _prune(self._path, self._kept_bytes)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            try:
                if self._file is not None:
                    self._file.close()
            except OSError as error:
                self._give_up(error)
            self._file = None

    def _write(self, file: BinaryIO, line: str) -> None:
        content = line.encode() + b"\n"
        file.write(content)
        self._size += len(content)

    def _flush_late(self) -> None:
        """Flush, in the timer's thread, what no further entry has flushed: the last entries before a quiet time."""
        with self._lock:
            self._timer = None
            try:
                if self._file is not None:
                    self._file.flush()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Stop recording. The file is not closed: closing would try to write the rest again, and fail again."""
        self._writing.failed(f"the journal {self._path} ends here: {error.strerror}; serving goes on")
        self._file = None


def read(path: Path) -> Journal:
    """Return all complete entries of a run, also of the files that it continues.

    A last line without its end, as a killed process leaves it, is skipped. Raises `InputError` for a file that cannot
    be read or was removed, and for any other line that is no entry (with its number).
    """
    return list(entries(path))


def entries(path: Path, decode: Callable[[str], E] = decode) -> Iterator[E]:  # type: ignore[assignment]
    """Yield what `read` returns. `decode` reads one line."""
    for file, number, line in run_lines(path):
        try:
            yield decode(line)
        except InputError as error:
            raise InputError(f"line {number} of {file.name}", error.value, "a journal entry") from None


def run_lines(path: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield the complete lines of a run, each with its file and number, the eldest first. Raises `InputError`.

    What is no UTF-8 is replaced, so that it fails as a line alone.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1 and line.startswith(CONTINUES.encode()):
                    yield from run_lines(_former(path, line))
                elif line.endswith(b"\n"):
                    yield path, number, line[:-1].decode("utf-8", "replace")
    except OSError as error:
        raise InputError("journal", path, f"a file that can be read ({error})") from None


def _former(path: Path, line: bytes) -> Path:
    """Return the file that `path` continues, by its first line. Raises `InputError` where that names no other file."""
    try:
        former = path.with_name(Path(json.loads(line)["continues"]).name)
    except (ValueError, TypeError):
        former = path
    if former == path:
        raise InputError(f"line 1 of {path.name}", line[:80], "the name of another file that this one continues")
    return former


def _locked(path: Path, mode: str) -> BinaryIO:
    """Open a file that this process alone writes. Raises `BlockingIOError` if another has it, `OSError`."""
    file: BinaryIO = path.open(mode, buffering=BUFFER_BYTES)  # type: ignore[assignment]
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def _keep(path: Path) -> Path:
    """Rename the file by the next number and return its new path."""
    kept = path.with_name(f"{path.name}.{max(_kept(path), default=0) + 1}")
    path.rename(kept)
    return kept


def _kept(path: Path) -> dict[int, Path]:
    """Return the numbered files of a journal."""
    files = path.parent.glob(f"{path.name}.*")
    return {int(file.suffix[1:]): file for file in files if file.suffix[1:].isdecimal()}


def _prune(path: Path, kept_bytes: int) -> None:
    """Remove the oldest numbered files, until all together have at most so many bytes."""
    kept, total = _kept(path), 0
    for number in sorted(kept, reverse=True):
        total += kept[number].stat().st_size
        if total > kept_bytes:
            kept[number].unlink()
