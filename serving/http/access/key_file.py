"""Where a service's keys come from: its settings, or a file, which a running service follows.

The file is read whole, replaced whole, by one writer at a time, and readable by its owner alone.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from pliant.errors import InputError
from pliant.serving.http.access.keys import Keys, from_json, to_json

MAX_BYTES = 16 * 1024 * 1024
"""Of a file of keys: some 50,000 of them."""

LOOK_SECONDS = 0.5  # between two looks at the file
FILE = "keys.json"
"""Name of the file of keys in the project's folder, which counts if it is there when the service starts."""

KeySource = Callable[[], Keys]
"""Returns the present keys."""
T = TypeVar("T")
logger = logging.getLogger("pliant.serving")


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


class KeySettings(Protocol):
    @property
    def keys(self) -> str: ...
    @property
    def keys_file(self) -> Path | None: ...
    @property
    def home(self) -> Path: ...


def key_source(settings: KeySettings) -> KeySource | None:
    """Return the keys of a service; None if there are none, so that everybody on this machine may call it.

    Raises `InputError` for keys that are not valid, and for two sources.
    """
    if settings.keys and settings.keys_file is not None:
        raise InputError("PLIANT_KEYS", "given together with PLIANT_KEYS_FILE", "given without it")
    if settings.keys:
        fixed = from_json(settings.keys, "PLIANT_KEYS")
        return lambda: fixed
    usual = settings.home / FILE
    path = settings.keys_file or (usual if usual.exists() else None)
    return None if path is None else FollowedKeys(path)


class FollowedKeys:
    """The keys of a file. One that breaks or vanishes later leaves the former keys in force, and the log says so."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `InputError` for a file that is missing or not valid."""
        self._path, self._clock = path, clock
        self._seen, self._looked = _signature(path), clock()
        self._keys = read_keys(path)

    def __call__(self) -> Keys:
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look()
        return self._keys

    def _look(self) -> None:
        signature = _signature(self._path)
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._keys = read_keys(self._path)
            logger.info("the keys of %s are in force: %d", self._path, len(self._keys.keys))
        except InputError as error:
            logger.error("the former keys stay in force: %s", error)


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what differs after a change of the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


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
