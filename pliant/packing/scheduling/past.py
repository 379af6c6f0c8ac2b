"""How long the latest outputs were: the distribution that the policy `past-future` predicts by.

Shape suffix: G points of a forecast's grid.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from pliant.packing.scheduling.forecast import POINTS, Floats, Grid

WINDOW = 1000  # outputs


class Past:
    """The lengths of the last `WINDOW` outputs, on a grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._latest: deque[int] = deque(maxlen=WINDOW)
        self._counts: NDArray[np.int64] = np.zeros(POINTS, np.int64)

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, tokens: int) -> None:
        """Note an output's length; the oldest is forgotten."""
        at = min(int(np.searchsorted(self._grid.tokens, tokens - 1e-9)), POINTS - 1)
        if len(self._latest) == WINDOW:
            self._counts[self._latest[0]] -= 1
        self._latest.append(at)
        self._counts[at] += 1

    def row(self) -> Floats:
        """Return [G], the shares of outputs of at most as many tokens as the grid's points; 0 everywhere without any."""
        row: Floats = self._counts.cumsum() / max(len(self._latest), 1)
        return row
