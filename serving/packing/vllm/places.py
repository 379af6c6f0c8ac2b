"""The folder in which engines are installed: one command at a time works there, and what it leaves can be removed."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pliant.errors import InputError, PliantError
from serving.packing.vllm import engine


@dataclass(frozen=True, slots=True)
class Places:
    """The folders beside an environment while it is made. All lie on one disk, so that files are linked, not copied.

    `lock`: the descriptor of the lock's file. Commands that work here inherit it, so that the lock is held until they end,
    too, where this process is killed.
    """

    engines: Path
    lock: int

    @property
    def new(self) -> Path:
        return self.engines / f".{engine.NAME}-new"

    @property
    def old(self) -> Path:
        return self.engines / f".{engine.NAME}-old"

    @property
    def downloads(self) -> Path:
        return self.engines / ".downloads"

    @property
    def log(self) -> Path:
        """What a command printed that failed, without addresses."""
        return self.engines / f"{engine.NAME}.log"

    def clean(self) -> None:
        """Remove what an interruption left, but not the downloads."""
        for folder in (self.new, self.old):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def one_at_a_time(engines: Path) -> Iterator[Places]:
    """Make the folder of engines if there is none, and hold its lock."""
    try:
        engines.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(engines / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        text = f"a folder in which this user may make {engines} ({error.strerror})"
        raise InputError("PLIANT_HOME", engines.parent, text) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Places(engines, descriptor)
    except BlockingIOError:
        raise PliantError(f"another command is at work in {engines}; wait until it is done") from None
    finally:
        os.close(descriptor)


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder, which may change meanwhile."""
    total, folders = 0, [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def disk_error(error: OSError, folder: Path) -> PliantError:
    """Return the sentence for an error while a folder was written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return PliantError(f"the disk with {folder} is full; once there is room, the same command goes on")
    return PliantError(f"{error.filename or folder} cannot be used: {error.strerror or type(error).__name__}")
