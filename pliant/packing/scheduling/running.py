"""The sequences that a device holds in its cache, as columns: what the scheduler counts and predicts over all at once.

Shapes: N running sequences, G points of a forecast's grid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pliant.packing.scheduling.forecast import POINTS

Ints = NDArray[np.int64]
WHOLE = ("id", "made", "cached", "unread", "limit", "reserved", "turn", "prompt", "group")
FIRST = 16  # rows made room for at first


class Running:
    """Columns of equal length; a row leaves by taking the last one's place, so their order means nothing."""

    def __init__(self) -> None:
        self.count = 0
        self._whole = np.zeros((len(WHOLE), FIRST), np.int64)
        self._key = np.zeros(FIRST)
        self._rows = np.zeros((FIRST, POINTS))
        self._at: dict[int, int] = {}

    def __contains__(self, id: int) -> bool:
        return id in self._at

    def ids(self) -> list[int]:
        return list(self._at)

    def column(self, name: str) -> Ints:
        """[N] a view that may be written to: id | made | cached | unread | limit | reserved | turn | prompt | group."""
        return self._whole[WHOLE.index(name), : self.count]

    @property
    def key(self) -> NDArray[np.float64]:
        """[N] the key, within the column `group`, of the place in the line that each was admitted from."""
        return self._key[: self.count]

    @property
    def rows(self) -> NDArray[np.float64]:
        """[N, G] what is forecast of each one's output."""
        return self._rows[: self.count]

    def at(self, id: int) -> int:
        return self._at[id]

    def needed(self, more: int, page_tokens: int) -> Ints:
        """[N] pages of each with all that it has yet to read, or where it has read all with so many more tokens."""
        unread = self.column("unread")
        needed: Ints = -(-(self.column("cached") + unread + more * (unread == 0)) // page_tokens)
        return needed

    def held(self, page_tokens: int) -> int:
        """Pages of all."""
        return int((-(-self.column("cached") // page_tokens)).sum())

    def by_turn(self, which: NDArray[np.bool_]) -> Ints:
        """Places of those chosen, the first admitted first."""
        at = np.flatnonzero(which)
        return at[np.argsort(self.column("turn")[at], kind="stable")]

    def add(self, values: tuple[int, ...], key: float, row: NDArray[np.float64]) -> None:
        """`values` as in WHOLE."""
        if self.count == self._key.shape[0]:
            self._whole = np.concatenate([self._whole, np.zeros_like(self._whole)], axis=1)
            self._key = np.concatenate([self._key, np.zeros_like(self._key)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._whole[:, self.count], self._key[self.count], self._rows[self.count] = values, key, row
        self._at[values[0]] = self.count
        self.count += 1

    def remove(self, id: int) -> dict[str, int]:
        """The row's whole numbers by name."""
        place, last = self._at.pop(id), self.count - 1
        values = dict(zip(WHOLE, self._whole[:, place].tolist(), strict=True))
        if place != last:
            self._whole[:, place], self._key[place] = self._whole[:, last], self._key[last]
            self._rows[place] = self._rows[last]
            self._at[int(self._whole[0, place])] = place
        self.count = last
        return values
