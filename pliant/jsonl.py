"""Files of lines that processes append to, and that a killed one leaves with a torn end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pliant.errors import InputError

logger = logging.getLogger("pliant")

LOG_BYTES = 16 * 2**20
"""Size of a log at which the next process starts another file."""
PRIVATE = 0o600
"""Mode of a file that holds what people wrote."""


def complete_lines(path: Path, name: str) -> list[str]:
    """Return all lines that have an end, without it; what is no UTF-8 is replaced, so that it fails as a line alone.

    Raises `InputError`, which calls the file `name`, if it cannot be read.
    """
    try:
        whole, _, _torn = path.read_bytes().rpartition(b"\n")
    except OSError as error:
        raise InputError(name, path, f"a file that can be read ({error})") from None
    return whole.decode("utf-8", "replace").split("\n") if whole else []


def open_to_append(path: Path) -> BinaryIO:
    """Open a file that only its owner may read, to append lines; a torn line gets its end, so that it spoils no other.

    Makes its folder if it is missing. Raises `OSError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE), "a+b")
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.write(b"\n")
    return file


def append_whole(path: Path, content: bytes) -> int:
    """Append lines, all or none of them, and return the size of the file. Raises `OSError`."""
    with open_to_append(path) as file:
        file.flush()  # the end of a line that a killed process left torn
        descriptor, left = file.fileno(), memoryview(content)
        before = os.fstat(descriptor).st_size
        try:
            while left:
                left = left[os.write(descriptor, left) :]
        except OSError:  # of a full disk, some bytes may have been written
            os.ftruncate(descriptor, before)
            raise
        return os.fstat(descriptor).st_size


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file by one that only its owner may read, on the disk before it takes its place. Raises `OSError`."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def blank_lines(path: Path, meant: Callable[[bytes], bool], leading: bool = False) -> int:
    """Overwrite the lines that are meant with spaces, and return how many there were. Another process may be appending.

    `leading`: only those before the first that is not meant. Raises `OSError`.
    """
    count, place = 0, 0
    with path.open("r+b") as file:
        for line in iter(file.readline, b""):
            place += len(line)
            if not line.endswith(b"\n") or line.isspace():
                continue
            if meant(line):
                file.seek(place - len(line))
                file.write(b" " * (len(line) - 1) + b"\n")
                count += 1
            elif leading:
                break
        file.flush()
        os.fsync(file.fileno())
    return count


def open_log(path: Path) -> BinaryIO:
    """Open a log to append to. One that has grown beyond its size limit is kept as `<name>.1`, in place of the former.

    Makes its folder if it is missing. Raises `InputError` where it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
        return path.open("ab")
    except OSError as error:
        raise InputError("log", path, f"a file that this user can write ({error.strerror})") from None


class Torn:
    """Counts the lines of a file that hold nothing that can be used, and are passed over."""

    def __init__(self, path: Path) -> None:
        self._path, self._count, self._first = path, 0, ""

    @contextmanager
    def pass_over(self, number: int) -> Iterator[None]:
        """Count the line with this number if using it raises `InputError`."""
        try:
            yield
        except InputError as error:
            self._first = self._first or f"line {number}: {error}"
            self._count += 1

    def report(self, what: str) -> None:
        """Log how many lines were passed over, if any, and why the first was."""
        if self._count:
            logger.warning("passed over in %s, as they are no %s: %d (%s)", self._path, what, self._count, self._first)
