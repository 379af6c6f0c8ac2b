"""How many sequences an iteration of an engine may have: as many as the plan says, fewer after one that had no memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class SequenceLimit:
    """The limit of one engine, for the next start of its process. `on_change` is called after each lack of memory."""

    planned: int
    on_change: Callable[[SequenceLimit], None] = field(default=lambda _limit: None, repr=False)
    value: int = 0  # set at the start to `planned`
    exhausted: int = 0  # processes that ran out of memory

    def __post_init__(self) -> None:
        self.value = self.planned

    def lower(self, running: int) -> bool:
        """Note that a process ran out of memory with so many sequences, and return whether the next one takes fewer.

        It takes half of them, and half of the limit where it ran none. One sequence alone cannot be lowered.
        """
        self.exhausted += 1
        before = min(self.value, running or self.value)
        if before > 1:
            self.value = before // 2
        self.on_change(self)
        return before > 1
