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
from typing import NamedTuple

from pliant.outcomes.answered import Answered, Label

DIGEST_BYTES = 16  # of an id: far too many for two ids to have the same
NONE = -1  # of rows


class Row(NamedTuple):
    """An answer as it is kept. Labels are numbers: the place of a class, or in a regression the value."""

    sequence: int  # 0 for the first answer of all, counted on over restarts
    digest: bytes  # of its id
    at: float
    answer: float  # the label given
    confidence: float
    common: Answered  # what it shares with others: all but label, confidence and `former`
    former: tuple[float, ...] = ()  # label and confidence of each former level, in turn
    label: float = math.nan  # the label reported; NaN: none yet


@dataclass(slots=True, eq=False)
class _Shared:
    """What the answers of some rows have in common."""

    answered: Answered
    rows: int = 0


class AnswerMemory:
    """The `size` newest answers, oldest first. Rows are valid until the next `add` or `drop_oldest`."""

    def __init__(self, size: int, former: int = 0) -> None:
        """`former`: of how many former levels label and confidence are kept, at most, in 8 bytes each."""
        self._size, self._first, self._count = size, 0, 0
        self._added = 0  # answers so far, also those of former runs
        self._mask = (1 << max(0, size - 1).bit_length()) - 1
        # Multiplied, not made of zeros: that writes to all pages, so that the system gives them now.
        self._heads = array("i", [NONE]) * (self._mask + 1)  # first row of each bucket
        self._next = array("i", [NONE]) * size  # the next row in the bucket
        self._digests = bytearray(DIGEST_BYTES * size)
        self._sequences = array("q", [0]) * size
        self._times = array("d", [0.0]) * size
        self._answers = array("d", [0.0]) * size  # the label given, as a number: see `_number`
        self._confidences = array("d", [0.0]) * size
        self._labels = array("d", [math.nan]) * size  # the label reported, as a number; NaN: none yet
        self._width = 2 * former
        self._former = array("f", [0.0]) * (size * self._width)
        self._shared_of: list[_Shared | None] = [None] * size
        self._shared: dict[Answered, _Shared] = {}
        self._by_identity: dict[int, _Shared] = {}  # the same, by the id of `answered`, which lives as long

    def __len__(self) -> int:
        return self._count

    @property
    def oldest(self) -> float | None:
        """Return the time of the oldest answer; None if there is none."""
        return self._times[self._first] if self._count else None

    def add(self, id: str, answered: Answered, now: float) -> Row:
        """Keep an answer, in the place of the oldest if there is no room, and return how."""
        common = replace(answered, label="", confidence=0.0, former=())
        former = tuple(number for label, share in answered.former for number in (_number(answered, label), share))
        return self.add_number(id, common, _number(answered, answered.label), answered.confidence, now, former)

    def add_number(
        self, id: str, common: Answered, answer: float, confidence: float, now: float, former: tuple[float, ...] = ()
    ) -> Row:
        """Keep an answer as `add` does; faster, where `common` and the label as a number are at hand. See `Row`."""
        row = Row(self._added, _digest(id), now, answer, confidence, common, former)
        self.put(row)
        return row

    def put(self, entry: Row) -> None:
        """Keep a row as it is, in the place of the oldest if there is no room. Its sequence is beyond those before."""
        sequence, digest, at, answer, confidence, common, former, label = entry
        if self._count == self._size:
            self.drop_oldest()
        assert sequence >= self._added, "rows come in order"
        row = (self._first + self._count) % self._size
        bucket, heads = int.from_bytes(digest[:4], "little") & self._mask, self._heads
        self._next[row] = heads[bucket]
        heads[bucket] = row
        start = row * DIGEST_BYTES
        self._digests[start : start + DIGEST_BYTES] = digest
        self._sequences[row] = sequence
        self._times[row] = at
        self._confidences[row] = confidence
        self._answers[row] = answer
        self._labels[row] = label
        if former and self._width:
            start = row * self._width
            self._former[start : start + min(self._width, len(former))] = array("f", former[: self._width])
        shared = self._share(common)
        shared.rows += 1
        self._shared_of[row] = shared
        self._count += 1
        self._added = sequence + 1

    def _share(self, common: Answered) -> _Shared:
        """Return what the answers with this `common` share; for the very object that came before without its hash."""
        shared = self._by_identity.get(id(common))
        if shared is None:
            shared = self._shared.get(common)
        if shared is None:
            shared = self._shared[common] = self._by_identity[id(common)] = _Shared(common)
        return shared

    def drop_oldest(self) -> None:
        """Forget the oldest answer, and its label."""
        row, shared = self._first, self._shared_of[self._first]
        assert self._count and shared is not None, "there is no answer to forget"
        self._unlink(row)
        shared.rows -= 1
        if not shared.rows:
            del self._shared[shared.answered], self._by_identity[id(shared.answered)]
        self._shared_of[row] = None
        self._first, self._count = (row + 1) % self._size, self._count - 1

    def find(self, id: str) -> int | None:
        """Return the row of an answer; None if it is not kept."""
        digest = _digest(id)
        row = self._heads[self._bucket(digest)]
        while row != NONE and self._digest_of(row) != digest:
            row = self._next[row]
        return None if row == NONE else row

    def sequence(self, row: int) -> int:
        """Return the place of a row's answer among all answers so far."""
        return self._sequences[row]

    def at(self, row: int) -> float:
        """Return when the answer of a row was given."""
        return self._times[row]

    def answered(self, row: int) -> Answered:
        """Return the answer of a row."""
        common = self._common(row)
        label, start = _label(common, self._answers[row]), row * self._width
        numbers = self._former[start : start + min(self._width, 2 * len(common.former_levels))]
        former = tuple((_label(common, numbers[at]), numbers[at + 1]) for at in range(0, len(numbers), 2))
        return replace(common, label=label, confidence=self._confidences[row], former=former)

    def label(self, row: int) -> Label | None:
        """Return the label that was reported for the answer of a row; None if none was."""
        number = self._labels[row]
        return None if math.isnan(number) else _label(self._common(row), number)

    def set_label(self, row: int, label: Label) -> float:
        """Keep the label that was reported for the answer of a row: a class of its task, or a finite number.

        Returns it as a number.
        """
        self._labels[row] = _number(self._common(row), label)
        return self._labels[row]

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
