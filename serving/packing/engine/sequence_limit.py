"""How many sequences an iteration of an engine may have: as many as the plan says, fewer after one that had no memory."""

from __future__ import annotations

from collections.abc import Callable


class SequenceLimit:
    """The limit of one engine, for the next start of its process. `on_change` is called after each lack of memory."""

    def __init__(self, planned: int, on_change: Callable[[SequenceLimit], None] = lambda _limit: None) -> None:
        self.planned, self.value, self._on_change = planned, planned, on_change
        self.exhausted = 0  # processes that ran out of memory

    def lower(self, running: int) -> bool:
        """Note that a process ran out of memory with so many sequences, and return whether the next one takes fewer.

        It takes half of them, and half of the limit where it ran none. One sequence alone cannot be lowered.
        """
        self.exhausted += 1
        before = min(self.value, running or self.value)
        if before > 1:
            self.value = before // 2
        self._on_change(self)
        return before > 1
