"""The sequences in a device's cache as columns of a table, so that the scheduler counts and predicts over all at once.

Shape suffixes: N running sequences, G points of a forecast's grid.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from pliant.packing.scheduling.forecast import POINTS

Ints = NDArray[np.int64]
COLUMNS = ("id", "generated", "cached", "unread", "limit", "reserved", "turn", "prompt", "group", "common", "taken")
"""`common`: pages of the sequence that others may use, too. `taken`: tokens that others had read for it."""
FIRST = 16  # rows allocated at first


class Running:
    """A table with a row for each running sequence. The last row replaces one that leaves: the order is arbitrary."""

    def __init__(self) -> None:
        self.count = 0
        self._whole = np.zeros((len(COLUMNS), FIRST), np.int64)
        self._key = np.zeros(FIRST)
        self._rows = np.zeros((FIRST, POINTS))
        self._at: dict[int, int] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._at

    def ids(self) -> list[int]:
        return list(self._at)

    def column(self, name: str) -> Ints:
        """Return one of COLUMNS as a view [N] that may be written to."""
        return self._whole[COLUMNS.index(name), : self.count]

    @property
    def key(self) -> NDArray[np.float64]:
        """[N] the key of each sequence's priority within its `group`, as it was when it waited."""
        return self._key[: self.count]

    @property
    def rows(self) -> NDArray[np.float64]:
        """[N, G] the distribution of each sequence's output (see `forecast.Grid`)."""
        return self._rows[: self.count]

    def at(self, id: int) -> int:
        """Return the row of a sequence."""
        return self._at[id]

    def needed(self, more: int, page_tokens: int) -> Ints:
        """Return [N], the pages of each sequence with all its prompt, or with `more` tokens if it generates already.

        Those that others may use, too, are not among them.
        """
        unread = self.column("unread")
        needed: Ints = -(-(self.column("cached") + unread + more * (unread == 0)) // page_tokens) - self.column(
            "common"
        )
        return needed

    def pages_held(self, page_tokens: int) -> int:
        """Return the pages of all sequences together, without those that others may use, too."""
        return int((-(-self.column("cached") // page_tokens) - self.column("common")).sum())

    def but(self, ids: Collection[int]) -> NDArray[np.bool_]:
        """Return [N] whether a sequence is none of these."""
        others = np.ones(self.count, np.bool_)
        others[[self._at[id] for id in ids]] = False
        return others

    def by_turn(self, selected: NDArray[np.bool_]) -> Ints:
        """Return the rows where `selected` is true, the first admitted first."""
        chosen = np.flatnonzero(selected)
        return chosen[np.argsort(self.column("turn")[chosen], kind="stable")]

    def by_priority(self, selected: NDArray[np.bool_]) -> Ints:
        """Return the rows where `selected` is true, the first in priority first."""
        chosen = np.flatnonzero(selected)
        columns = self.column("turn")[chosen], self.key[chosen], self.column("group")[chosen]
        return chosen[np.lexsort(columns)]

    def add(self, columns: tuple[int, ...], key: float, row: NDArray[np.float64]) -> None:
        """Add a row: whole numbers in the order of COLUMNS, the key of its priority, and its distribution [G].

        Numbers that are left out are 0.
        """
        if self.count == self._key.shape[0]:
            self._whole = np.concatenate([self._whole, np.zeros_like(self._whole)], axis=1)
            self._key = np.concatenate([self._key, np.zeros_like(self._key)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._whole[:, self.count] = columns + (0,) * (len(COLUMNS) - len(columns))
        self._key[self.count], self._rows[self.count] = key, row
        self._at[columns[0]] = self.count
        self.count += 1

    def remove(self, id: int) -> dict[str, int]:
        """Remove a sequence and return its whole numbers by name."""
        index, last = self._at.pop(id), self.count - 1
        values = dict(zip(COLUMNS, self._whole[:, index].tolist(), strict=True))
        if index != last:
            self._whole[:, index], self._key[index] = self._whole[:, last], self._key[last]
            self._rows[index] = self._rows[last]
            self._at[int(self._whole[0, index])] = index
        self.count = last
        return values
