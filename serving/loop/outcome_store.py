"""Keeps answers, figures and alarms in a SQLite file, labels in a file of lines, and inputs where the settings say so.

A thread writes about once a second and whenever a label is to be acknowledged: the event loop never waits for a disk, and
labels that come while one write is under way share the next. A killed process loses the answers of the last second, and no
label that it has acknowledged. Where the folder cannot be used, as another service has it or the disk is full at the start,
the log says so and outcomes are kept in memory alone.

The SQLite file holds nothing that people wrote or sent: of an answer its id's digest, and task, version, candidate, levels,
predicted class, confidences, tenant and time; the id itself where the answer was drawn to be labelled. It is bounded by the
number and the age of answers: beside the newest ones, which are also at hand, and those drawn, each hour keeps so many, at
random. SQLite's log of writes is not synced at every transaction: a killed process loses nothing that was written, a power
cut the last transactions, but never the file. Rows are inserted hundreds at a time, since each statement gives up the
interpreter's lock and has to wait for it again.

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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pliant.errors import InputError
from pliant.jsonl import PRIVATE, append_whole
from pliant.outcomes.files import BUSY_SECONDS, INPUTS, LABELS, OLDER, KeptInput
from pliant.outcomes.record import Key, Record
from pliant.outcomes.tracker import Alarm, Answered, Changes, Row
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
HOUR = 3600.0
PRUNE_SECONDS = HOUR  # between two removals of what is too old
MOST = 3_000_000  # answers: some 270 MB
_TABLES = """
CREATE TABLE IF NOT EXISTS shared (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (sequence INTEGER PRIMARY KEY, digest BLOB NOT NULL, at REAL NOT NULL,
  answer REAL NOT NULL, confidence REAL NOT NULL, shared INTEGER NOT NULL, former BLOB, label REAL);
CREATE INDEX IF NOT EXISTS answers_digest ON answers (digest);
CREATE TABLE IF NOT EXISTS drawn (sequence INTEGER PRIMARY KEY, id BLOB NOT NULL, inclusion REAL NOT NULL,
  listed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS records (key TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS alarms (id INTEGER PRIMARY KEY, content TEXT NOT NULL);
"""
_ROWS = """SELECT sequence, digest, at, answer, confidence, shared, former, label, id, inclusion, listed
  FROM answers LEFT JOIN drawn USING (sequence)"""
LABEL_BYTES = 16 << 20  # of the file, at which the next one begins; some 50,000 labels. One older file is kept.
ANY_TEXT = "utf-8", "surrogatepass"  # how an id is encoded
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

    def __init__(
        self, folder: Path, memory: int, seconds: float, clock: Callable[[], float] = time.time, most: int = MOST
    ) -> None:
        """Open the file, or make it; it keeps `memory` and `most` answers. Raises `OSError` (`BlockingIOError` if another
        service has it) and `sqlite3.Error`."""
        self._memory, self._seconds, self._clock = memory, seconds, clock
        self._an_hour = max(1, int(most * min(1.0, HOUR / seconds)))
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
        self._waiting = Changes()  # not written yet
        self.writing, self._pruned = Writing("outcomes", folder), time.monotonic()

    def load(self) -> tuple[Iterator[Row], dict[Key, Record], list[Alarm]]:
        """Return what a former run left: of the answers the newest `memory`, and those drawn. Lines that cannot be read are
        passed over, and the log says how many."""
        self._prune()
        passed_over: list[str] = []
        base = self._base
        counted = _lines(base, "SELECT rowid, content FROM records ORDER BY rowid", _Counted, passed_over)
        records = {each.key: each.record for each in counted.values()}
        alarms = [*_lines(base, "SELECT id, content FROM alarms ORDER BY id", Alarm, passed_over).values()]
        commons = _lines(base, "SELECT id, content FROM shared", Answered, passed_over)
        self._shared = {common: number for number, common in commons.items()}
        if passed_over:
            logger.warning("passed over in %s: %d (%s)", self._path, len(passed_over), passed_over[0])
        query = f"{_ROWS} WHERE id IS NOT NULL OR sequence > (SELECT MAX(sequence) FROM answers) - ? ORDER BY sequence"
        return self._rows(base.execute(query, (self._memory,)), commons), records, alarms

    def find(self, digests: Collection[bytes]) -> list[Row]:
        """Return the answers that have been written with these ids. Any thread may call it. Raises `sqlite3.Error`."""
        among, values = ",".join("?" * len(digests)), tuple(digests)
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as base:
            query = f"SELECT id, content FROM shared WHERE id IN (SELECT shared FROM answers WHERE digest IN ({among}))"
            commons = _lines(base, query, Answered, [], values)
            rows = base.execute(f"{_ROWS} WHERE digest IN ({among}) ORDER BY sequence DESC", values)
            return [*self._rows(rows, commons)]

    def write(self, changes: Changes) -> bool:
        """Write the changes, and return whether they are written. What cannot be written now, as the disk is full, is
        written later, within a limit; the log says so once."""
        self._waiting = self._waiting.then(changes)
        try:
            # Labels first: one that is in the file twice, after a kill between the two, counts once.
            lines, path = "".join(f"{record.to_line()}\n" for record in self._waiting.taken), self.folder / LABELS
            if lines and append_whole(path, lines.encode()) > LABEL_BYTES:
                path.replace(self.folder / OLDER)
            self._waiting = replace(self._waiting, taken=())
            if self._waiting != Changes():
                self._write_all(self._waiting)
            self._waiting = Changes()
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

    def _rows(self, lines: Iterable[tuple[Any, ...]], commons: Mapping[int, Answered]) -> Iterator[Row]:
        now = self._clock()
        # Those that were given before the clock was set back count as given now.
        for sequence, digest, at, answer, confidence, shared, former, label, *drawn in lines:
            if shared in commons:
                numbers = tuple(array("f", former)) if former else ()
                known = math.nan if label is None else label
                row = Row(sequence, digest, min(at, now), answer, confidence, commons[shared], numbers, known)
                if drawn[0] is not None:
                    row = row._replace(id=drawn[0].decode(*ANY_TEXT), inclusion=drawn[1], listed=drawn[2])
                yield row

    def _write_all(self, changes: Changes) -> None:
        with self._base as base:
            base.execute("BEGIN IMMEDIATE")
            self._insert(changes.answers)
            base.executemany("UPDATE answers SET label = ? WHERE sequence = ?", [mark[::-1] for mark in changes.labels])
            drawn = [(row.sequence, row.id.encode(*ANY_TEXT), row.inclusion, row.listed) for row in changes.drawn]
            base.executemany("INSERT OR REPLACE INTO drawn VALUES (?, ?, ?, ?)", drawn)
            for key, record in changes.records.items():
                name = repr(key)
                base.execute("DELETE FROM records WHERE key = ?", (name,))
                if record is not None:
                    base.execute("INSERT INTO records VALUES (?, ?)", (name, json.dumps(asdict(_Counted(key, record)))))
            if changes.alarms is not None:
                base.execute("DELETE FROM alarms")
                lines = [(alarm.id, json.dumps(asdict(alarm))) for alarm in changes.alarms]
                base.executemany("INSERT INTO alarms VALUES (?, ?)", lines)

    def _insert(self, answers: Iterable[Row]) -> None:
        values = []
        for row in answers:
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

    def _prune(self) -> None:
        """Remove answers that are too old or too many, and what no answer shares any more."""
        self._pruned = time.monotonic()
        with self._base as base:
            base.execute("BEGIN IMMEDIATE")
            base.execute("DELETE FROM answers WHERE at < ?", (self._clock() - self._seconds,))
            gone = "sequence NOT IN (SELECT sequence FROM answers)"
            base.execute(f"DELETE FROM drawn WHERE inclusion = 0 AND listed = 0 OR {gone}")
            # Of whole hours alone, so that each of their answers is as likely to stay as any other.
            newest = "SELECT at FROM answers ORDER BY sequence DESC LIMIT 1 OFFSET ?"
            (last,) = base.execute(newest, (self._memory,)).fetchone() or (0.0,)
            hour, others = f"CAST(at / {HOUR} AS INTEGER)", "sequence NOT IN (SELECT sequence FROM drawn)"
            counts = f"SELECT {hour}, COUNT(*) FROM answers WHERE {hour} < ? AND {others} GROUP BY {hour}"
            for which, count in base.execute(counts, (int(last / HOUR),)).fetchall():
                if count > self._an_hour:
                    chosen = f"SELECT sequence FROM answers WHERE {hour} = ? AND {others} ORDER BY RANDOM() LIMIT ?"
                    base.execute(f"DELETE FROM answers WHERE sequence IN ({chosen})", (which, count - self._an_hour))
            base.execute("DELETE FROM shared WHERE id NOT IN (SELECT DISTINCT shared FROM answers)")
        kept = {number for (number,) in self._base.execute("SELECT id FROM shared")}
        self._shared = {common: number for common, number in self._shared.items() if number in kept}


def _lines(
    base: sqlite3.Connection, query: str, kind: type[T], passed_over: list[str], values: tuple[bytes, ...] = ()
) -> dict[int, T]:
    """Return what the lines of a table hold, by their numbers, but for those that cannot be read."""
    read_lines: dict[int, T] = {}
    for number, line in base.execute(query, values):
        try:
            read_lines[number] = read(kind, line, "a line of outcomes")
        except InputError as error:
            passed_over.append(str(error))
    return read_lines


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
