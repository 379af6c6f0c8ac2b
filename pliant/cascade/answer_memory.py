"""Keeps the latest answers until their labels come, in a memory that is taken at the start and never grows.

A service gives millions of answers, and a label may come weeks later. Kept as objects, 100,000 answers grow to 40 MB
over the service's first hours. Here an answer takes a row of some 60 bytes in arrays; what it shares with other answers
(task, candidate, level, classes, tenant) is kept once. Rows are found by a hash table with a chain of rows a bucket.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from dataclasses import dataclass, replace

from pliant.cascade.answered import Answered, Label

DIGEST_BYTES = 16  # of an id: far too many for two ids to have the same
NONE = -1  # of rows


@dataclass(slots=True, eq=False)
class _Shared:
    """What the answers of some rows have in common: all but label and confidence."""

    answered: Answered
    rows: int = 0


class AnswerMemory:
    """The `size` newest answers, oldest first. Rows are valid until the next `add` or `drop_oldest`."""

    def __init__(self, size: int) -> None:
        self._size, self._first, self._count = size, 0, 0
        self._mask = (1 << max(0, size - 1).bit_length()) - 1
        # Multiplied, not made of zeros: that writes to all pages, so that the system gives them now.
        self._heads = array("i", [NONE]) * (self._mask + 1)  # first row of each bucket
        self._next = array("i", [NONE]) * size  # the next row in the bucket
        self._digests = bytearray(DIGEST_BYTES * size)
        self._times = array("d", [0.0]) * size
        self._answers = array("d", [0.0]) * size  # the label given, as a number: see `_number`
        self._confidences = array("d", [0.0]) * size
        self._labels = array("d", [math.nan]) * size  # the label reported, as a number; NaN: none yet
        self._shared_of: list[_Shared | None] = [None] * size
        self._shared: dict[Answered, _Shared] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def oldest(self) -> float | None:
        """Return the time of the oldest answer; None if there is none."""
        return self._times[self._first] if self._count else None

    def add(self, id: str, answered: Answered, now: float) -> None:
        """Keep an answer, in the place of the oldest if there is no room."""
        if self._count == self._size:
            self.drop_oldest()
        row = (self._first + self._count) % self._size
        digest = _digest(id)
        bucket = self._bucket(digest)
        self._next[row], self._heads[bucket] = self._heads[bucket], row
        self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES] = digest
        self._times[row], self._confidences[row] = now, answered.confidence
        self._answers[row], self._labels[row] = _number(answered, answered.label), math.nan
        common = replace(answered, label="", confidence=0.0)
        shared = self._shared.setdefault(common, _Shared(common))
        shared.rows += 1
        self._shared_of[row] = shared
        self._count += 1

    def drop_oldest(self) -> None:
        """Forget the oldest answer, and its label."""
        row, shared = self._first, self._shared_of[self._first]
        assert self._count and shared is not None, "there is no answer to forget"
        self._unlink(row)
        shared.rows -= 1
        if not shared.rows:
            del self._shared[shared.answered]
        self._shared_of[row] = None
        self._first, self._count = (row + 1) % self._size, self._count - 1

    def find(self, id: str) -> int | None:
        """Return the row of an answer; None if it is not kept."""
        digest = _digest(id)
        row = self._heads[self._bucket(digest)]
        while row != NONE and self._digest_of(row) != digest:
            row = self._next[row]
        return None if row == NONE else row

    def answered(self, row: int) -> Answered:
        """Return the answer of a row."""
        common = self._common(row)
        label = _label(common, self._answers[row])
        return replace(common, label=label, confidence=self._confidences[row])

    def label(self, row: int) -> Label | None:
        """Return the label that was reported for the answer of a row; None if none was."""
        number = self._labels[row]
        return None if math.isnan(number) else _label(self._common(row), number)

    def set_label(self, row: int, label: Label) -> None:
        """Keep the label that was reported for the answer of a row: a class of its task, or a finite number."""
        self._labels[row] = _number(self._common(row), label)

    def check(self) -> None:
        """Raises AssertionError if the table does not hold just the rows that are kept."""
        kept = {(self._first + offset) % self._size for offset in range(self._count)}
        chained = []
        for row in self._heads:
            while row != NONE:
                chained.append(row)
                row = self._next[row]
        assert len(chained) == len(kept) and set(chained) == kept, "a row is lost, or in two chains"
        assert sum(shared.rows for shared in self._shared.values()) == self._count, "what rows share is miscounted"

    def _common(self, row: int) -> Answered:
        shared = self._shared_of[row]
        assert shared is not None, "the row is empty"
        return shared.answered

    def _unlink(self, row: int) -> None:
        """Take a row out of the chain of its bucket."""
        bucket, after = self._bucket(self._digest_of(row)), self._next[row]
        at = self._heads[bucket]
        if at == row:
            self._heads[bucket] = after
            return
        while self._next[at] != row:
            at = self._next[at]
        self._next[at] = after

    def _digest_of(self, row: int) -> bytes:
        return bytes(self._digests[row * DIGEST_BYTES : (row + 1) * DIGEST_BYTES])

    def _bucket(self, digest: bytes) -> int:
        return int.from_bytes(digest[:4], "little") & self._mask


def _digest(id: str) -> bytes:
    """Return the digest of an id; clients may ask for any text, also for one that UTF-8 cannot hold."""
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def _number(answered: Answered, label: Label) -> float:
    """Return a label as a number: the place of a class, or in a regression the value."""
    return float(answered.classes.index(str(label)) if answered.classes else label)


def _label(answered: Answered, number: float) -> Label:
    """Return the label that `_number` turned into this number."""
    return answered.classes[int(number)] if answered.classes else number
