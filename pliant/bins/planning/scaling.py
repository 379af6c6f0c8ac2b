"""How many devices are in use: Arlo's rule on the tail of recent latencies."""

from __future__ import annotations

from collections import deque

import numpy as np

from pliant.bins.knowledge import Scaling


class Scaler:
    """One device more when the p98 of recent requests reaches 95% of their SLO, one less while it stays below half."""

    def __init__(self, config: Scaling) -> None:
        self._config = config
        self._shares: deque[tuple[float, float]] = deque()  # (when answered, latency / SLO)
        self._next = 0.0
        self._since: float | None = None  # when the number last changed

    def answered(self, now: float, share: float) -> None:
        """Note that a request was answered after `share` of its SLO; infinity for one that was dropped."""
        self._shares.append((now, share))

    def wake_at(self) -> float | None:
        """Return when to decide next; None where there is nothing to go by."""
        return self._next if self._shares else None

    def decide(self, now: float, late: int = 0) -> int:
        """Return +1, 0 or -1 devices; a decision falls at most every `pause` seconds.

        `late`: waiting requests that cannot be in time and were put behind all others. They count like dropped ones: if
        only answers counted, latencies would seem to improve while these wait.
        """
        if now < self._next or not self._shares:
            return 0
        self._next = now + self._config.pause
        while self._shares and self._shares[0][0] < now - self._config.window:
            self._shares.popleft()
        self._since = now if self._since is None else self._since
        lost = [float("inf")] * late
        recent = lost + [share for at, share in self._shares if at >= now - self._config.pause]
        if recent and _tail(recent, self._config.quantile) >= self._config.high:
            self._since = now
            return 1
        every = lost + [share for _, share in self._shares]
        calm = bool(every) and _tail(every, self._config.quantile) < self._config.low
        if not calm or now - self._since < self._config.window:
            return 0
        self._since = now
        return -1


def _tail(shares: list[float], quantile: float) -> float:
    """Return the value that this share of all does not exceed, without interpolation, as some may be infinite."""
    return float(np.quantile(shares, quantile, method="higher"))
