"""Writes outcomes to disk in a thread, about once a second and whenever a label is to be acknowledged: the event loop never
waits for a disk, and labels that come while one write is under way share the next.

A killed process loses the answers of the last second, and no label that it has acknowledged. Where the folder cannot be
used, as another service has it or the disk is full at the start, the log says so and outcomes are kept in memory alone.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pliant.outcomes.tracker import Changes, Restored
from pliant.serving.driver import PatientClock
from pliant.serving.loop.outcome_store import Inputs, Store
from pliant.serving.state_file import Writing

SECONDS = 1.0  # between two writes
LOCK_SECONDS = 2.0  # that the start waits for a former service to end

logger = logging.getLogger("pliant.serving")


class OutcomeWriter:
    """Keeps the outcomes of one service in a folder."""

    def __init__(self, store: Store, inputs: Inputs | None = None, seconds: float = SECONDS) -> None:
        self.inputs, self._store, self._seconds = inputs, store, seconds
        self._end, self._wake = threading.Event(), threading.Event()
        self._waiters: deque[asyncio.Future[bool]] = deque()  # that wait for the next write
        self._thread: threading.Thread | None = None
        self._drain: Callable[[], Changes] = Changes
        self._writing = Writing("inputs", store.folder)

    @property
    def failing(self) -> bool:
        """Whether what was last to be written could not be."""
        return self._store.writing.failing

    def load(self) -> Restored:
        """Return what a former run left."""
        return self._store.load()

    def start(self, drain: Callable[[], Changes]) -> None:
        """Write what `drain` returns from now on."""
        self._drain = drain
        self._thread = threading.Thread(target=self._run, name="outcomes", daemon=True)
        self._thread.start()

    async def written(self) -> bool:
        """Wait until all that has changed by now was handed to the operating system, and return whether it was."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        return await waiter

    def close(self) -> None:
        """Write the rest and end."""
        self._end.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        self._write()
        self._store.close()
        if self.inputs is not None:
            self.inputs.close()

    def _run(self) -> None:
        while not self._end.is_set():
            self._wake.wait(self._seconds)
            self._wake.clear()
            self._write()

    def _write(self) -> None:
        waiters = [self._waiters.popleft() for _ in range(len(self._waiters))]  # before what they wait for is drained
        written = False
        try:
            written = self._store.write(self._drain())
        except Exception:  # a fault here must not end the thread
            logger.exception("outcomes were not kept")
        for each in waiters:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits
                each.get_loop().call_soon_threadsafe(_answer, each, written)
        if self.inputs is None:
            return
        try:
            self.inputs.write()
            self._writing.succeeded()
        except (OSError, sqlite3.Error) as error:
            self._writing.failed(f"inputs cannot be kept in {self._store.folder}: {error}; serving goes on")


def _answer(waiter: asyncio.Future[bool], written: bool) -> None:
    if not waiter.done():
        waiter.set_result(written)


def open_writer(
    folder: Path, memory: int, seconds: float, keep_inputs: bool, lock_seconds: float = LOCK_SECONDS
) -> OutcomeWriter | None:
    """Return the writer of a folder; None if it cannot be used, which the log says."""
    deadline = time.monotonic() + lock_seconds
    while True:
        try:
            store = Store(folder, memory, seconds, PatientClock())
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            logger.warning("another service keeps its outcomes in %s: this one's are forgotten when it ends", folder)
            return None
        except (OSError, sqlite3.Error) as error:
            logger.error("outcomes cannot be kept in %s: %s; they are forgotten when the service ends", folder, error)
            return None
        break
    try:
        return OutcomeWriter(store, Inputs(folder, seconds) if keep_inputs else None)
    except (OSError, sqlite3.Error) as error:
        logger.error("inputs cannot be kept in %s: %s", folder, error)
        return OutcomeWriter(store)
