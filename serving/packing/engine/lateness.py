"""Counts the forecasts of the last minute by origin, so that a predictor that does not keep up is seen."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

MINUTE = 60.0  # seconds that are looked back
MAX_LATE_SHARE = 0.01  # share of late forecasts in the last minute above which the log says so


@dataclass(frozen=True, slots=True)
class RecentForecasts:
    """Forecasts of the last minute, and how many of them were late or failed."""

    number: int
    late: int
    failed: int

    @property
    def late_share(self) -> float:
        """Return the share of late ones; 0 of none."""
        return self.late / self.number if self.number else 0.0

    @property
    def failed_share(self) -> float:
        """Return the share of failed ones; 0 of none."""
        return self.failed / self.number if self.number else 0.0


class Lateness:
    """The forecasts of one predictor, counted by the second. `now` is in seconds and never goes back."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, Counter[str]]] = deque()
        self._judged_at: float | None = None

    def add(self, origin: str, now: float) -> None:
        """Count a forecast that is predicted, late or failed."""
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append((int(now), Counter()))
            self._forget(now)
        self._seconds[-1][1][origin] += 1

    def recent(self, now: float) -> RecentForecasts:
        """Return the counts of the last minute."""
        self._forget(now)
        total: Counter[str] = Counter()
        for _, counts in self._seconds:
            total.update(counts)
        return RecentForecasts(total.total(), total["late"], total["failed"])

    def excess(self, now: float) -> RecentForecasts | None:
        """Return the counts of the last minute if too many were late; None where it was called within a minute before."""
        if self._judged_at is None:
            self._judged_at = now
        if now - self._judged_at < MINUTE:
            return None
        self._judged_at = now
        recent = self.recent(now)
        return recent if recent.late_share > MAX_LATE_SHARE else None

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] <= now - MINUTE:
            self._seconds.popleft()
