"""A table of measured latencies: (setting, batch) -> seconds, linear between what was measured.

Knows nothing of how it was measured (profiling/) or what a setting means (tokens: gamma; bins: length).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Median seconds of one launch, `seconds[i][j]` for `settings[i]` at `batches[j]` (both ascending, batches >= 1)."""

    settings: tuple[int, ...]
    batches: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if sorted(set(self.settings)) != list(self.settings) or not self.settings:
            raise InputError("settings", self.settings, "ascending, without repeats and at least one")
        if sorted(set(self.batches)) != list(self.batches) or not self.batches or self.batches[0] < 1:
            raise InputError("batches", self.batches, "ascending, without repeats and at least 1")
        shape = [len(row) for row in self.seconds]
        if shape != [len(self.batches)] * len(self.settings):
            raise InputError("seconds", f"of shape {shape}", f"{len(self.settings)} rows of {len(self.batches)}")
        if not all(0 < s < float("inf") for row in self.seconds for s in row):
            raise InputError("seconds", self.seconds, "positive and finite")

    def at(self, setting: int, batch: int) -> float:
        """Seconds of one launch. Below the first measured batch: its latency. Beyond the last: its latency per item."""
        row = self.row(setting)
        if batch > self.batches[-1]:
            return row[-1] * batch / self.batches[-1]
        return float(np.interp(batch, self.batches, row))

    def between(self, setting: float, batch: int) -> float:
        """As `at`, and linear between settings that are amounts of work, such as lengths.

        Below the first measured setting: its latency. Beyond the last: its latency per unit.
        """
        last = self.settings[-1]
        if setting > last:
            return self.at(last, batch) * setting / last
        above = bisect_left(self.settings, setting)
        high = self.settings[above]
        if above == 0 or setting == high:
            return self.at(high, batch)
        low = self.settings[above - 1]
        share = (setting - low) / (high - low)
        return (1 - share) * self.at(low, batch) + share * self.at(high, batch)

    def row(self, setting: int) -> tuple[float, ...]:
        """Measured seconds of one setting, by batch."""
        if setting not in self.settings:
            raise InputError("setting", setting, f"one of {self.settings}")
        return self.seconds[self.settings.index(setting)]

    def dense(self, up_to: int) -> NDArray[np.float64]:
        """`dense[i, n]` = seconds of settings[i] at batch n, for n from 0 (zero seconds) to `up_to`."""
        table = [[0.0, *(self.at(setting, n) for n in range(1, up_to + 1))] for setting in self.settings]
        return np.asarray(table)

    def throughput(self, setting: int, up_to: int, within: float = float("inf")) -> float:
        """Most items a second at one setting, over batches 1 to `up_to` that take at most `within` seconds.

        Where not even one item does, the rate of one at a time.
        """
        rates = [n / self.at(setting, n) for n in range(1, up_to + 1) if self.at(setting, n) <= within]
        return max(rates, default=1 / self.at(setting, 1))
