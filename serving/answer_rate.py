"""How fast requests are answered, to tell those that are turned away when to come again."""

from __future__ import annotations

import math

MEMORY = 10.0  # seconds, the time constant of the mean


class AnswerRate:
    """An exponentially weighted mean of answers per second. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._rate, self._at = 0.0, 0.0

    def count(self, now: float) -> None:
        """An answer was given."""
        self._rate = self._decayed(now) + 1 / MEMORY
        self._at = now

    def seconds(self, waiting: int, now: float) -> float:
        """Return the seconds in which so many requests are probably answered: at least 1, also if none was lately."""
        rate = self._decayed(now)
        return max(1.0, waiting / rate) if rate > 0.01 else 1.0

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / MEMORY)
