"""The file of keys: read whole, replaced whole, by one writer at a time, readable by its owner alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pliant.errors import InputError
from serving.http.access.keys import Keys, from_json, to_json

MAX_BYTES = 16 * 1024 * 1024
"""Of a file of keys: some 50,000 of them."""

T = TypeVar("T")


def read_keys(path: Path) -> Keys:
    """Return the keys of a file. Raises `InputError` for one that is missing or not valid."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError("file of keys", path, f"at most {MAX_BYTES} bytes")
        return from_json(path.read_text(encoding="utf-8"), f"file of keys {path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError("file of keys", path, f"a file that `pliant keys add` made ({reason})") from None


def update_keys(path: Path, change: Callable[[Keys], tuple[Keys, T]]) -> T:
    """Replace the keys of a file by those that `change` returns for them, and return what it returns besides.

    A missing file counts as one without keys. Raises `InputError` as `read_keys`, for a file that cannot be written, and as
    `change`; then the file is as before.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            keys, result = change(read_keys(path) if path.exists() else Keys())
            _replace(path, to_json(keys))
    except OSError as error:
        raise InputError("file of keys", path, f"a file that can be written ({error.strerror})") from None
    return result


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other writer is at work. The lock is on a file beside, since the file itself is replaced."""
    with open(path.with_name(f".{path.name}.lock"), "w", opener=_for_owner) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # its mode is 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _for_owner(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)
