"""Keeps what people wrote or sent, where the setting `keep_inputs` says so, to learn from it once labels come.

Bounded by number, bytes and age, the oldest going first; what is deleted is overwritten. pliant/outcomes/files.py reads it
and forgets it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import deque
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

from pliant.lines import PRIVATE
from pliant.outcomes.files import BUSY_SECONDS, INPUTS, KeptInput

MAX_COUNT = 10_000
MAX_BYTES = 256 << 20
MAX_PENDING = 32 << 20  # bytes that wait to be written; what comes beyond is not kept
_TABLE = """
CREATE TABLE IF NOT EXISTS inputs (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, task TEXT NOT NULL, at REAL NOT NULL,
  form TEXT NOT NULL, content BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS inputs_id ON inputs (id);
"""


class Inputs:
    """The file of inputs in a folder. `keep` is for the event loop, the rest for one other thread."""

    def __init__(
        self,
        folder: Path,
        seconds: float,
        clock: Callable[[], float] = time.time,
        max_count: int = MAX_COUNT,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Raises `OSError` and `sqlite3.Error` if the file cannot be made."""
        self._seconds, self._clock, self._max_count, self._max_bytes = seconds, clock, max_count, max_bytes
        self._waiting: deque[KeptInput] = deque()
        self._pending = 0
        path = folder / INPUTS
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS)
        for pragma in ("secure_delete = ON", "journal_mode = WAL", "synchronous = NORMAL", "journal_size_limit = 0"):
            self._base.execute(f"PRAGMA {pragma}")
        self._base.executescript(_TABLE)

    def keep(self, id: str, task: str, form: str, content: bytes) -> None:
        """Keep an input from the next `write` on, unless too much waits for that. See `KeptInput`."""
        if self._pending + len(content) <= MAX_PENDING:
            self._pending += len(content)
            self._waiting.append(KeptInput(id, task, self._clock(), form, content))

    def write(self) -> None:
        """Write what waits, and remove what is too much or too old. Raises `sqlite3.Error`; then it waits on."""
        rows = [self._waiting[place] for place in range(len(self._waiting))]
        if rows:
            with self._base:
                self._base.execute("BEGIN IMMEDIATE")
                insert = "INSERT INTO inputs (id, task, at, form, content) VALUES (?, ?, ?, ?, ?)"
                self._base.executemany(insert, map(astuple, rows))
            for row in rows:
                self._waiting.popleft()
                self._pending -= len(row.content)
        self._prune()

    def close(self) -> None:
        self._base.close()

    def _prune(self) -> None:
        self._base.execute("DELETE FROM inputs WHERE at < ?", (self._clock() - self._seconds,))
        count, size = self._base.execute("SELECT COUNT(*), COALESCE(SUM(LENGTH(content)), 0) FROM inputs").fetchone()
        if count <= self._max_count and size <= self._max_bytes:
            return
        last = 0
        for sequence, length in self._base.execute("SELECT sequence, LENGTH(content) FROM inputs ORDER BY sequence"):
            if count <= self._max_count and size <= self._max_bytes:
                break
            last, count, size = sequence, count - 1, size - length
        self._base.execute("DELETE FROM inputs WHERE sequence <= ?", (last,))
