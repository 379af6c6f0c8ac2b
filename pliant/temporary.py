"""Temporary folders that do not stay when their process is killed: the next process that needs one removes them.

Whoever makes a folder holds the lock of a file in it for as long as he lives. A folder whose lock is free has no owner.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

PREFIX = "pliant-owned-"
LOCK = ".lock"


class OwnedFolder:
    """A new folder under the system's temporary folder, removed with this object, or when the process ends."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._end = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())

    def remove(self) -> None:
        """Remove the folder now."""
        self._end()


def _remove(path: Path, descriptor: int, owner: int) -> None:
    if os.getpid() == owner:  # not a child that was forked with this object
        shutil.rmtree(path, ignore_errors=True)
    os.close(descriptor)


def abandoned() -> Iterator[Path]:
    """Yield the folders whose owners were killed."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        try:
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # being made or removed at this moment, or somebody else's
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        except BlockingIOError:
            pass
        finally:
            os.close(descriptor)


def remove_abandoned() -> None:
    """Remove the folders whose owners were killed; what cannot be removed stays."""
    for folder in abandoned():
        shutil.rmtree(folder, ignore_errors=True)
