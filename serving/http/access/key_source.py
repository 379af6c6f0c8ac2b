"""Where a service's keys come from, and how it follows them: a file that may change while it runs, or its settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pliant.errors import InputError
from serving.http.access.key_file import read_keys
from serving.http.access.keys import Keys, from_json

LOOK_SECONDS = 0.5  # between two looks at the file
FILE = "keys.json"
"""Name of the file of keys in the project's folder, which counts if it is there when the service starts."""

logger = logging.getLogger("pliant.serving")

Signature = tuple[int, int, int]


class KeySettings(Protocol):
    @property
    def keys(self) -> str: ...
    @property
    def keys_file(self) -> Path | None: ...
    @property
    def home(self) -> Path: ...


class KeySource(Protocol):
    def keys(self) -> Keys:
        """Return the present keys."""


class FixedKeys:
    """Keys that do not change."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    def keys(self) -> Keys:
        return self._keys


class FileKeys:
    """The keys of a file. One that breaks or vanishes later leaves the former keys in force, and the log says so."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `InputError` for a file that is missing or not valid."""
        self._path, self._clock = path, clock
        self._seen, self._looked = _signature(path), clock()
        self._keys = read_keys(path)

    def keys(self) -> Keys:
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


def key_source(settings: KeySettings) -> KeySource | None:
    """Return the keys of a service; None if there are none, so that everybody on this machine may call it.

    Raises `InputError` for keys that are not valid, and for two sources.
    """
    if settings.keys and settings.keys_file is not None:
        raise InputError("PLIANT_KEYS", "given together with PLIANT_KEYS_FILE", "given without it")
    if settings.keys:
        return FixedKeys(from_json(settings.keys, "PLIANT_KEYS"))
    if settings.keys_file is not None:
        return FileKeys(settings.keys_file)
    usual = settings.home / FILE
    return FileKeys(usual) if usual.exists() else None


def _signature(path: Path) -> Signature | None:
    """Return what differs after a change of the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
