"""Keeps answers, figures and alarms in a SQLite file, labels in a file of lines, and inputs where the settings say so.

The first holds nothing that people wrote or sent: of an answer its id's digest, and task, version, candidate, levels,
predicted class, confidences, tenant and time. It is bounded by the number and the age of answers. SQLite's log of writes is
not synced at every transaction: a killed process loses nothing that was written, a power cut the last transactions, but
never the file. Rows are inserted hundreds at a time, since each statement gives up the interpreter's lock and has to wait
for it again.

Inputs are bounded by number, bytes and age, the oldest going first; what is deleted is overwritten. pliant/outcomes/files.py
reads them and forgets them.
"""

from __future__ import annotations

import fcntl
import logging
import math
import os
import sqlite3
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

from pliant.errors import InputError
from pliant.jsonl import PRIVATE, append_whole
from pliant.outcomes.answered import Answered, Row
from pliant.outcomes.figures import Alarm, Key
from pliant.outcomes.files import BUSY_SECONDS, INPUTS, LABELS, OLDER, KeptInput
from pliant.outcomes.labels import LabelRecord
from pliant.outcomes.record import RecordState
from pliant.outcomes.state import (
    alarm_from_line,
    alarm_to_line,
    common_from_line,
    common_to_line,
    record_from_line,
    record_to_line,
)
from pliant.outcomes.tracker import MAX_CHANGES, Changes, Restored
from pliant.serving.state_file import Writing

INPUT_COUNT = 10_000
INPUT_BYTES = 256 << 20
MAX_PENDING = 32 << 20  # bytes that wait to be written; what comes beyond is not kept
_INPUTS_TABLE = """
CREATE TABLE IF NOT EXISTS inputs (sequence INTEGER PRIMARY KEY, id TEXT NOT NULL, task TEXT NOT NULL, at REAL NOT NULL,
  form TEXT NOT NULL, content BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS inputs_id ON inputs (id);
"""
DATABASE = "outcomes.db"
LOCK = "lock"
VERSION = 1  # of the tables
AT_ONCE = (500, 50, 1)  # rows that one statement inserts
LOG_BYTES = 4 << 20  # of SQLite's log of writes, after it was written back
PRUNE_SECONDS = 3600.0  # between two removals of what is too old
_TABLES = """
CREATE TABLE IF NOT EXISTS shared (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (sequence INTEGER PRIMARY KEY, digest BLOB NOT NULL, at REAL NOT NULL,
  answer REAL NOT NULL, confidence REAL NOT NULL, shared INTEGER NOT NULL, former BLOB, label REAL);
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS alarms (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
"""
T = TypeVar("T")
logger = logging.getLogger("pliant.serving")

LABEL_BYTES = 16 << 20  # of the file, at which the next one begins; some 50,000 labels. One older file is kept.


class LabelFile:
    """The file of labels in a folder. One process writes it (serving/loop/outcome_store.py has the lock)."""

    def __init__(self, folder: Path, max_bytes: int = LABEL_BYTES) -> None:
        self._path, self._older, self._max_bytes = folder / LABELS, folder / OLDER, max_bytes

    def append(self, lines: Sequence[str]) -> None:
        """Append whole lines, all or none. Raises `OSError`."""
        if not lines:
            return
        if append_whole(self._path, "".join(f"{line}\n" for line in lines).encode()) > self._max_bytes:
            self._path.replace(self._older)


class Inputs:
    """The file of inputs in a folder. `keep` is for the event loop, the rest for one other thread."""

    def __init__(
        self,
        folder: Path,
        seconds: float,
        clock: Callable[[], float] = time.time,
        max_count: int = INPUT_COUNT,
        max_bytes: int = INPUT_BYTES,
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
        self._base.executescript(_INPUTS_TABLE)

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


class Store:
    """The file of one service. After `load`, one thread at a time may use it."""

    def __init__(self, folder: Path, memory: int, seconds: float, clock: Callable[[], float] = time.time) -> None:
        """Open the file, or make it. Raises `OSError` (`BlockingIOError` if another service has it) and `sqlite3.Error`."""
        self._memory, self._seconds, self._clock = memory, seconds, clock
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder, self._path = folder, folder / DATABASE
        self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._base = self._open()
        except BaseException:
            os.close(self._lock)
            raise
        self._labels = LabelFile(folder)
        self._shared: dict[Answered, int] = {}  # number of what answers share
        self._answers: deque[Row] = deque(maxlen=MAX_CHANGES)  # not written yet; those below too
        self._marks: deque[tuple[int, float]] = deque(maxlen=MAX_CHANGES)
        self._taken: deque[LabelRecord] = deque(maxlen=MAX_CHANGES)
        self._records: dict[Key, RecordState | None] = {}
        self._alarms: tuple[Alarm, ...] | None = None
        self.writing, self._pruned = Writing("outcomes", folder), time.monotonic()

    def load(self) -> Restored:
        """Return what a former run left. Lines that cannot be read are passed over, and the log says how many."""
        self._prune()
        passed_over: list[str] = []
        records = self._read("SELECT rowid, content FROM records ORDER BY rowid", record_from_line, passed_over)
        alarms = self._read("SELECT id, content FROM alarms ORDER BY id", alarm_from_line, passed_over)
        commons = self._read("SELECT id, content FROM shared", common_from_line, passed_over)
        self._shared = {common: number for number, common in commons.items()}
        if passed_over:
            logger.warning("passed over in %s: %d (%s)", self._path, len(passed_over), passed_over[0])
        return Restored(self._rows(commons), dict(records.values()), tuple(alarms.values()))

    def _read(self, query: str, parse: Callable[[str], T], passed_over: list[str]) -> dict[int, T]:
        """Return what the lines of a query say, by their numbers, and add the errors of those that cannot be read."""
        entries: dict[int, T] = {}
        for number, line in self._base.execute(query):
            try:
                entries[number] = parse(line)
            except InputError as error:
                passed_over.append(str(error))
        return entries

    def write(self, changes: Changes) -> bool:
        """Write the changes, and return whether they are written. What cannot be written now, as the disk is full, is
        written later, within a limit; the log says so once."""
        self._answers.extend(changes.answers)
        self._marks.extend(changes.labels)
        self._taken.extend(changes.taken)
        for key, state in changes.records.items():
            self._records.pop(key, None)
            self._records[key] = state
        self._alarms = self._alarms if changes.alarms is None else changes.alarms
        try:
            # Labels first: one that is in the file twice, after a kill between the two, counts once.
            self._labels.append([record.to_line() for record in self._taken])
            self._taken.clear()
            self._write_all()
            if time.monotonic() - self._pruned > PRUNE_SECONDS:
                self._prune()
        except (OSError, sqlite3.Error) as error:
            self.writing.failed(f"outcomes cannot be kept in {self.folder}: {error}; serving goes on")
            self._shared.clear()  # its latest numbers may have been rolled back
            return False
        self.writing.succeeded()
        return True

    def close(self) -> None:
        """Close the file and give up its lock."""
        try:
            self._base.close()
        finally:
            os.close(self._lock)

    def _open(self) -> sqlite3.Connection:
        try:
            return _opened(self._path)
        except sqlite3.OperationalError:  # as of a full disk
            raise
        except sqlite3.DatabaseError as error:
            aside = self._path.with_name(f"{DATABASE}.broken")
            logger.error("%s cannot be used (%s): it is kept as %s, and outcomes start anew", self._path, error, aside)
            self._path.replace(aside)
            for rest in ("-wal", "-shm"):
                self._path.with_name(DATABASE + rest).unlink(missing_ok=True)
            return _opened(self._path)

    def _rows(self, commons: dict[int, Answered]) -> Iterator[Row]:
        now = self._clock()
        # Those that were given before the clock was set back count as given now.
        query = "SELECT sequence, digest, at, answer, confidence, shared, former, label FROM answers ORDER BY sequence"
        for sequence, digest, at, answer, confidence, shared, former, label in self._base.execute(query):
            if shared in commons:
                numbers = tuple(array("f", former)) if former else ()
                known = math.nan if label is None else label
                yield Row(sequence, digest, min(at, now), answer, confidence, commons[shared], numbers, known)

    def _write_all(self) -> None:
        base = self._base
        if not (self._answers or self._marks or self._records or self._alarms is not None):
            return
        with base:
            base.execute("BEGIN IMMEDIATE")
            self._insert(self._answers)
            base.executemany("UPDATE answers SET label = ? WHERE sequence = ?", [mark[::-1] for mark in self._marks])
            for key, state in self._records.items():
                name = repr(key)
                base.execute("DELETE FROM records WHERE key = ?", (name,))
                if state is not None:
                    base.execute("INSERT INTO records VALUES (?, ?)", (name, record_to_line(key, state)))
            if self._alarms is not None:
                base.execute("DELETE FROM alarms")
                base.executemany("INSERT INTO alarms VALUES (?, ?)", [(a.id, alarm_to_line(a)) for a in self._alarms])
        self._answers.clear()
        self._marks.clear()
        self._records.clear()
        self._alarms = None

    def _insert(self, rows: Iterable[Row]) -> None:
        values = [
            (r.sequence, r.digest, r.at, r.answer, r.confidence, self._number(r.common), _bytes(r.former)) for r in rows
        ]
        start = 0
        for size in AT_ONCE:
            statement = "INSERT OR REPLACE INTO answers VALUES " + ",".join(["(?,?,?,?,?,?,?,NULL)"] * size)
            while len(values) - start >= size:
                part = values[start : start + size]
                self._base.execute(statement, [value for row in part for value in row])
                start += size
        if values:
            self._base.execute("DELETE FROM answers WHERE sequence <= ?", (values[-1][0] - self._memory,))

    def _number(self, common: Answered) -> int:
        number = self._shared.get(common)
        if number is None:
            row = self._base.execute("INSERT INTO shared (content) VALUES (?)", (common_to_line(common),))
            number = self._shared[common] = row.lastrowid or 0
        return number

    def _prune(self) -> None:
        """Remove answers that are too old, and what no answer shares any more."""
        self._pruned = time.monotonic()
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.execute("DELETE FROM answers WHERE at < ?", (self._clock() - self._seconds,))
            self._base.execute("DELETE FROM shared WHERE id NOT IN (SELECT DISTINCT shared FROM answers)")
        kept = {number for (number,) in self._base.execute("SELECT id FROM shared")}
        self._shared = {common: number for common, number in self._shared.items() if number in kept}


def _opened(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        with closing(base.execute("PRAGMA user_version")) as answer:
            (version,) = answer.fetchone()
        if version not in (0, VERSION):
            raise sqlite3.DatabaseError(f"its tables are of version {version}")
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        base.executescript(_TABLES)
        base.execute(f"PRAGMA user_version = {VERSION}")
        if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("its pages do not fit together")
    except BaseException:
        base.close()
        raise
    return base


def _bytes(former: tuple[float, ...]) -> bytes | None:
    return array("f", former).tobytes() if former else None
