"""The hidden states that exits leave for the levels behind them, by what gave them, within a bound of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from torch import Tensor

Key = tuple[int, int, bytes, bytes]
"""The number of the classifier, its layers that have run, and the ids and types of the text."""


class States:
    """Hidden states [N, D] of texts. Beyond `most` bytes those go that were not used for longest. Safe among threads."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._states: OrderedDict[Key, Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, states: Iterable[tuple[Key, Tensor]]) -> None:
        """Keep these, each of which must own its memory."""
        with self._lock:
            for key, state_ND in states:
                self._drop(key)
                self._states[key] = state_ND
                self._bytes += state_ND.nbytes
            while self._bytes > self._most:
                self._drop(next(iter(self._states)))

    def get(self, keys: Sequence[Key]) -> list[Tensor] | None:
        """Return the states of all keys, or None where one is missing."""
        with self._lock:
            if any(key not in self._states for key in keys):
                return None
            for key in keys:
                self._states.move_to_end(key)
            return [self._states[key] for key in keys]

    def drop(self, keys: Iterable[Key]) -> None:
        """Forget what there is of these."""
        with self._lock:
            for key in keys:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        state_ND = self._states.pop(key, None)
        self._bytes -= 0 if state_ND is None else state_ND.nbytes
