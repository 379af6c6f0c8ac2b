"""One publisher at a time: a lock on a system's releases, across threads, processes and hosts.

A registry in a file is locked by a file beside it, which the operating system opens again when its owner ends. Any other
registry is locked in itself: by a registered model of a name that only the owner has, with tags that say who it is and
until when. Who comes makes such a model and then looks for others; who sees one that has not run out takes his own away
and tries again. A publisher that stalls for longer than its lease loses it, and notices before it commits.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pliant.errors import RegistryError
from pliant.registry.mlflow_client import unless_missing
from pliant.registry.names import lock

WAIT_SECONDS = 60.0  # that a publisher waits for another one; a commit takes a second or so
LEASE_SECONDS = 120.0
SAFE_SECONDS = 30.0  # of the lease that must be left for the last writes, also where two hosts' clocks differ
OWNER, UNTIL = "pliant.owner", "pliant.until"

Check = Callable[[], None]
"""Raises `RegistryError` where the lock is not held any more."""


@contextmanager
def file_lock(database: Path, system: str, wait: float = WAIT_SECONDS) -> Iterator[Check]:
    """Hold the lock of a registry in a file. Raises `RegistryError` where another process keeps it for `wait` seconds."""
    path = lock_file(database, system)

    def take() -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def why() -> str:
        file.seek(0)
        return f"{path} is held by {file.read(200) or 'another process'}"

    try:
        file = path.open("a+")
    except OSError as error:
        raise RegistryError(f"the lock {path} cannot be opened: {error.strerror}") from error
    with file:
        _wait_for(take, wait, why)
        changed = path.stat().st_mtime_ns
        file.seek(0)
        file.truncate()
        file.write(_owner())
        file.flush()
        os.utime(path, ns=(changed, changed))  # nothing is released yet
        try:
            yield lambda: None
        finally:
            os.utime(path)  # services on this machine look at the registry when this time changes


def lock_file(database: Path, system: str) -> Path:
    """Return the lock of a registry in a file. Its time of change is that of the last release, or a moment before."""
    return database.with_name(f"{database.name}.{system}.lock")


def last_release(database: Path, system: str) -> int:
    """Return when a publisher last held the lock of a registry in a file, in ns on the file's clock; 0: never."""
    try:
        return lock_file(database, system).stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(slots=True)
class Lease:
    """A lock in the registry itself, for a client of MLflow."""

    client: Any
    system: str
    seconds: float = LEASE_SECONDS
    clock: Callable[[], float] = time.time
    until: float = 0.0
    name: str = ""

    def take(self) -> bool:
        """Take the lock, and return whether it was free."""
        self.name, self.until = lock(self.system) + uuid4().hex, self.clock() + self.seconds
        self.client.create_registered_model(self.name, {OWNER: _owner(), UNTIL: f"{self.until:.3f}"})
        if any(model.name != self.name for model in self._others()):
            self.free()
            return False
        return True

    def check(self) -> None:
        """Raise `RegistryError` if the lease has run out, or nearly so, or was taken away."""
        held = any(model.name == self.name for model in self._models())
        if not held or self.clock() > self.until - SAFE_SECONDS:
            raise RegistryError("this publisher was held up and has lost its lock on the registry: run it again")

    def free(self) -> None:
        """Give the lock back."""
        self.client.delete_registered_model(self.name)

    def holder(self) -> str:
        """Return who holds the lock, as part of a sentence."""
        return ", ".join(str(model.tags.get(OWNER, model.name)) for model in self._others()) or "another publisher"

    def _models(self) -> list[Any]:
        return list(self.client.search_registered_models(f"name LIKE '{lock(self.system)}%'", max_results=1000))

    def _others(self) -> list[Any]:
        """Return the locks that have not run out, this one among them; those that have are removed."""
        live = []
        for model in self._models():
            if float(model.tags.get(UNTIL, 0)) > self.clock():
                live.append(model)
            elif model.name != self.name:
                _remove(self.client, model.name)
        return live


@contextmanager
def lease(client: Any, system: str, wait: float = WAIT_SECONDS) -> Iterator[Check]:
    """Hold the lock of a registry that is no file. Raises `RegistryError` where another publisher keeps it."""
    held = Lease(client, system)
    _wait_for(held.take, wait, lambda: f"the releases of {system} are locked by {held.holder()}")
    try:
        yield held.check
    finally:
        _remove(client, held.name)


def _remove(client: Any, name: str) -> None:
    """Remove a lock, unless somebody else has done so."""
    unless_missing(lambda: client.delete_registered_model(name))


def _wait_for(take: Callable[[], bool], wait: float, why: Callable[[], str]) -> None:
    until = time.monotonic() + wait
    while not take():
        if time.monotonic() > until:
            raise RegistryError(f"{why()}: another release is being published; try again when it is done")
        time.sleep(random.uniform(0.05, 0.3))


def _owner() -> str:
    return f"process {os.getpid()} of {socket.gethostname()}"
