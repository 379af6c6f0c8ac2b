"""Keeps answers, figures and alarms in a SQLite file, labels in a file of lines, and inputs where the settings say so.

A thread writes about once a second and whenever a label is to be acknowledged: the event loop never waits for a disk, and
labels that come while one write is under way share the next. A killed process loses the answers of the last second, and no
label that it has acknowledged. Where the folder cannot be used, as another service has it or the disk is full at the start,
the log says so and outcomes are kept in memory alone.

The SQLite file holds nothing that people wrote or sent: of an answer its id's digest, and task, version, candidate, levels,
predicted class, confidences, tenant and time. It is bounded by the number and the age of answers. SQLite's log of writes is
not synced at every transaction: a killed process loses nothing that was written, a power cut the last transactions, but
never the file. Rows are inserted hundreds at a time, since each statement gives up the interpreter's lock and has to wait
for it again.

Inputs are bounded by number, bytes and age, the oldest going first; what is deleted is overwritten. pliant/outcomes/files.py
reads them and forgets them.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import math
import os
import sqlite3
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TypeVar

from pliant.errors import InputError
from pliant.jsonl import PRIVATE, append_whole
from pliant.outcomes.files import BUSY_SECONDS, INPUTS, LABELS, OLDER, KeptInput
from pliant.outcomes.labels import LabelRecord
from pliant.outcomes.record import Key, Record
from pliant.outcomes.tracker import MAX_CHANGES, Alarm, Answered, Changes, Row
from pliant.serving.driver import PatientClock
from pliant.serving.state_file import Writing
from pliant.state import read

SECONDS = 1.0  # between two writes
LOCK_SECONDS = 2.0  # that the start waits for a former service to end
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
LABEL_BYTES = 16 << 20  # of the file, at which the next one begins; some 50,000 labels. One older file is kept.
T = TypeVar("T")
logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class _Counted:
    """A candidate and its record, as a line of the table holds them."""

    key: Key
    record: Record


def _connected(path: Path, timeout: float) -> sqlite3.Connection:
    """Return a connection to a file that only its owner may read."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=timeout)


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
        self._base = _connected(folder / INPUTS, BUSY_SECONDS)
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
        self._shared: dict[Answered, int] = {}  # number of what answers share
        self._answers: deque[Row] = deque(maxlen=MAX_CHANGES)  # not written yet; those below too
        self._marks: deque[tuple[int, float]] = deque(maxlen=MAX_CHANGES)
        self._taken: deque[LabelRecord] = deque(maxlen=MAX_CHANGES)
        self._records: dict[Key, Record | None] = {}
        self._alarms: tuple[Alarm, ...] | None = None
        self.writing, self._pruned = Writing("outcomes", folder), time.monotonic()

    def load(self) -> tuple[Iterator[Row], dict[Key, Record], list[Alarm]]:
        """Return what a former run left. Lines that cannot be read are passed over, and the log says how many."""
        self._prune()
        passed_over: list[str] = []

        def lines(query: str, kind: type[T], expected: str) -> Iterator[tuple[int, T]]:
            for number, line in self._base.execute(query):
                try:
                    yield number, read(kind, line, expected)
                except InputError as error:
                    passed_over.append(str(error))

        counted = lines("SELECT rowid, content FROM records ORDER BY rowid", _Counted, "figures of a candidate")
        records = {each.key: each.record for _, each in counted}
        alarms = [alarm for _, alarm in lines("SELECT id, content FROM alarms ORDER BY id", Alarm, "an alarm")]
        commons = dict(lines("SELECT id, content FROM shared", Answered, "what answers share"))
        self._shared = {common: number for number, common in commons.items()}
        if passed_over:
            logger.warning("passed over in %s: %d (%s)", self._path, len(passed_over), passed_over[0])
        return self._rows(commons), records, alarms

    def write(self, changes: Changes) -> bool:
        """Write the changes, and return whether they are written. What cannot be written now, as the disk is full, is
        written later, within a limit; the log says so once."""
        self._answers.extend(changes.answers)
        self._marks.extend(changes.labels)
        self._taken.extend(changes.taken)
        for key, record in changes.records.items():
            self._records.pop(key, None)
            self._records[key] = record
        self._alarms = self._alarms if changes.alarms is None else changes.alarms
        try:
            # Labels first: one that is in the file twice, after a kill between the two, counts once.
            lines, path = "".join(f"{record.to_line()}\n" for record in self._taken), self.folder / LABELS
            if lines and append_whole(path, lines.encode()) > LABEL_BYTES:
                path.replace(self.folder / OLDER)
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
        """Open the file; one that cannot be used is put aside."""
        try:
            return self._prepared()
        except sqlite3.OperationalError:  # as of a full disk
            raise
        except sqlite3.DatabaseError as error:
            aside = self._path.with_name(f"{DATABASE}.broken")
            logger.error("%s cannot be used (%s): it is kept as %s, and outcomes start anew", self._path, error, aside)
            self._path.replace(aside)
            for rest in ("-wal", "-shm"):
                self._path.with_name(DATABASE + rest).unlink(missing_ok=True)
            return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        base = _connected(self._path, 1.0)
        try:
            (version,) = base.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"its tables are of version {version}")
            for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"journal_size_limit = {LOG_BYTES}"):
                base.execute(f"PRAGMA {pragma}")
            base.executescript(_TABLES)
            base.execute(f"PRAGMA user_version = {VERSION}")
            if base.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise sqlite3.DatabaseError("its pages do not fit together")
        except BaseException:
            base.close()
            raise
        return base

    def _rows(self, commons: Mapping[int, Answered]) -> Iterator[Row]:
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
            self._insert()
            base.executemany("UPDATE answers SET label = ? WHERE sequence = ?", [mark[::-1] for mark in self._marks])
            for key, record in self._records.items():
                name = repr(key)
                base.execute("DELETE FROM records WHERE key = ?", (name,))
                if record is not None:
                    base.execute("INSERT INTO records VALUES (?, ?)", (name, json.dumps(asdict(_Counted(key, record)))))
            if self._alarms is not None:
                base.execute("DELETE FROM alarms")
                lines = [(alarm.id, json.dumps(asdict(alarm))) for alarm in self._alarms]
                base.executemany("INSERT INTO alarms VALUES (?, ?)", lines)
        self._answers.clear()
        self._marks.clear()
        self._records.clear()
        self._alarms = None

    def _insert(self) -> None:
        values = []
        for row in self._answers:
            number = self._shared.get(row.common)
            if number is None:
                inserted = self._base.execute(
                    "INSERT INTO shared (content) VALUES (?)", (json.dumps(asdict(row.common)),)
                )
                number = self._shared[row.common] = inserted.lastrowid or 0
            former = array("f", row.former).tobytes() if row.former else None
            values.append((row.sequence, row.digest, row.at, row.answer, row.confidence, number, former))
        start = 0
        for size in AT_ONCE:
            statement = "INSERT OR REPLACE INTO answers VALUES " + ",".join(["(?,?,?,?,?,?,?,NULL)"] * size)
            while len(values) - start >= size:
                part = values[start : start + size]
                self._base.execute(statement, [value for row in part for value in row])
                start += size
        if values:
            self._base.execute("DELETE FROM answers WHERE sequence <= ?", (values[-1][0] - self._memory,))

    def _prune(self) -> None:
        """Remove answers that are too old, and what no answer shares any more."""
        self._pruned = time.monotonic()
        with self._base:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.execute("DELETE FROM answers WHERE at < ?", (self._clock() - self._seconds,))
            self._base.execute("DELETE FROM shared WHERE id NOT IN (SELECT DISTINCT shared FROM answers)")
        kept = {number for (number,) in self._base.execute("SELECT id FROM shared")}
        self._shared = {common: number for common, number in self._shared.items() if number in kept}


class OutcomeWriter:
    """Keeps the outcomes of one service in a folder."""

    def __init__(self, store: Store, inputs: Inputs | None = None, seconds: float = SECONDS) -> None:
        self.inputs, self.store, self._seconds = inputs, store, seconds
        self._end, self._wake = threading.Event(), threading.Event()
        self._waiters: deque[asyncio.Future[bool]] = deque()  # that wait for the next write
        self._thread: threading.Thread | None = None
        self._drain: Callable[[], Changes] = Changes
        self._writing = Writing("inputs", store.folder)

    @property
    def failing(self) -> bool:
        """Whether what was last to be written could not be."""
        return self.store.writing.failing

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
        self.store.close()
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
            written = self.store.write(self._drain())
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
            self._writing.failed(f"inputs cannot be kept in {self.store.folder}: {error}; serving goes on")


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
