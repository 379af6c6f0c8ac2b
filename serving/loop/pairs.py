"""Keeps what both arms of a trial said until a label says who was right: the latest in memory, all on disk.

The event loop never waits for the disk: it adds and takes, and a thread writes and finds every few seconds.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from pliant.rollout.measures import Arm
from pliant.serving.state_file import Writing

LATEST = 4096  # pairs in memory
MOST = 500_000  # on disk, some 50 MB; the oldest go first
_TABLE = "CREATE TABLE IF NOT EXISTS pairs (number INTEGER PRIMARY KEY, id TEXT UNIQUE, release INTEGER, content TEXT)"


class Pair(NamedTuple):
    champion: Any  # labels of both answers
    challenger: Any
    seen: Arm  # whose answer a client saw


class Pairs:
    """The pairs of the trial of one release, by the id of the answer that a client saw."""

    def __init__(self, path: Path, release: int) -> None:
        self._path, self._release = path, release
        self.latest: OrderedDict[str, Pair] = OrderedDict()
        self._new: dict[str, Pair] = {}  # not written yet
        self._taken: list[str] = []
        self._writing = Writing("trials", path)

    def add(self, id: str, pair: Pair) -> None:
        self.latest[id] = self._new[id] = pair
        while len(self.latest) > LATEST:
            self.latest.popitem(last=False)

    def take(self, id: str) -> Pair | None:
        """Return a pair that is in memory, and forget it."""
        pair = self.latest.pop(id, None)
        if pair is not None and self._new.pop(id, None) is None:
            self._taken.append(id)
        return pair

    async def exchange(self, ids: Collection[str], in_thread: Callable[..., Awaitable[Any]]) -> Mapping[str, Pair]:
        """Write what is new, and take those of these ids that are on disk. Where the disk fails, the log says so once."""
        new, taken, self._new, self._taken = self._new, self._taken, {}, []
        if not (new or taken or (ids and self._path.exists())):
            return {}
        try:
            pairs: Mapping[str, Pair] = await in_thread(self._exchange, new, taken, ids)
        except (OSError, sqlite3.Error) as error:
            self._writing.failed(
                f"{self._path} cannot be written: {error}; labels of the latest {LATEST:,} pairs count"
            )
            self._new = {id: pair for id, pair in {**new, **self._new}.items() if id in self.latest}
            return {}
        self._writing.succeeded()
        return pairs

    def _exchange(self, new: Mapping[str, Pair], taken: list[str], ids: Collection[str]) -> dict[str, Pair]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path)) as base, base:
            base.execute(_TABLE)
            insert = "INSERT OR REPLACE INTO pairs (id, release, content) VALUES (?, ?, ?)"
            base.executemany(insert, [(id, self._release, json.dumps(pair)) for id, pair in new.items()])
            select = "SELECT content FROM pairs WHERE id = ? AND release = ?"
            contents = {id: base.execute(select, (id, self._release)).fetchone() for id in ids}
            pairs = {id: Pair(*json.loads(row[0])) for id, row in contents.items() if row is not None}
            base.executemany("DELETE FROM pairs WHERE id = ?", [(id,) for id in (*taken, *pairs)])
            base.execute("DELETE FROM pairs WHERE number <= (SELECT MAX(number) FROM pairs) - ?", (MOST,))
        return pairs
