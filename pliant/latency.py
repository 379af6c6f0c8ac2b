"""A table of measured latencies: (setting, batch) -> seconds, linear between measured points or in steps.

It rises in steps where batches are padded to the sizes of captured graphs: a batch of 33 then takes as long as one of 64.

Does not know how it was measured (profiling/) or what a setting means (tokens: gamma; bins, cascade: length in tokens).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError


@dataclass(frozen=True, slots=True)
class LatencyTable:
    """Median seconds of one launch: `seconds[i][j]` for `settings[i]` at `batches[j]`, both ascending, batches from 1
    on. `buckets`: ascending batch sizes to which batches are padded when they run; empty where none is padded.

    Raises `InputError` for a table of another shape, and for seconds that are not positive and finite.
    """

    settings: tuple[int, ...]
    batches: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    buckets: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if sorted(set(self.settings)) != list(self.settings) or not self.settings:
            raise InputError("settings", self.settings, "ascending, without repeats and at least one")
        if sorted(set(self.batches)) != list(self.batches) or not self.batches or self.batches[0] < 1:
            raise InputError("batches", self.batches, "ascending, without repeats and at least 1")
        if sorted(set(self.buckets)) != list(self.buckets) or (self.buckets and self.buckets[0] < 1):
            raise InputError("buckets", self.buckets, "ascending, without repeats and at least 1")
        shape = [len(row) for row in self.seconds]
        if shape != [len(self.batches)] * len(self.settings):
            raise InputError("seconds", f"of shape {shape}", f"{len(self.settings)} rows of {len(self.batches)}")
        if not all(0 < s < float("inf") for row in self.seconds for s in row):
            raise InputError("seconds", self.seconds, "positive and finite")

    def at(self, setting: int, batch: int) -> float:
        """Return the seconds of one launch, which are those of the bucket that holds the batch where there is one.

        Below the first measured batch they are its seconds, beyond the last one in proportion to it. Raises
        `InputError` for an unknown setting.
        """
        row = self.row(setting)
        batch = bucket(batch, self.buckets)
        if batch > self.batches[-1]:
            return row[-1] * batch / self.batches[-1]
        return float(np.interp(batch, self.batches, row))

    def between(self, setting: float, batch: int) -> float:
        """Return the seconds of one launch, linear between settings that are amounts of work, such as lengths.

        Below the first measured setting they are its seconds, beyond the last one in proportion to it.
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

    def scaled(self, by: float) -> LatencyTable:
        """Return the table of `by` times the seconds."""
        return replace(self, seconds=tuple(tuple(by * each for each in row) for row in self.seconds))

    def rows(self, what: str, named: Callable[[int], object] = int) -> list[dict[str, object]]:
        """Return a row of a table for each setting, which the column `what` names: milliseconds by batch."""
        return [
            {what: named(setting)}
            | {f"ms at batch {b}": round(1000 * s, 3) for b, s in zip(self.batches, row, strict=True)}
            for setting, row in zip(self.settings, self.seconds, strict=True)
        ]

    def only(self, settings: Sequence[int]) -> LatencyTable:
        """Return the table of these settings alone. Raises `InputError` for an unknown one."""
        chosen = tuple(sorted(settings))
        return replace(self, settings=chosen, seconds=tuple(self.row(setting) for setting in chosen))

    def row(self, setting: int) -> tuple[float, ...]:
        """Return the measured seconds of one setting, by batch. Raises `InputError` for an unknown setting."""
        if setting not in self.settings:
            raise InputError("setting", setting, f"one of {self.settings}")
        return self.seconds[self.settings.index(setting)]

    def dense(self, up_to: int) -> NDArray[np.float64]:
        """Return an array whose [i, n] is the seconds of `settings[i]` at batch n, from 0 (zero seconds) to `up_to`."""
        table = [[0.0, *(self.at(setting, n) for n in range(1, up_to + 1))] for setting in self.settings]
        return np.asarray(table)

    def throughput(self, setting: int, up_to: int, within: float = float("inf")) -> float:
        """Return the most items a second at one setting, over batches of 1 to `up_to` that take at most `within`
        seconds.

        If not even one item does, it is the rate of one item at a time.
        """
        rates = [n / self.at(setting, n) for n in range(1, up_to + 1) if self.at(setting, n) <= within]
        return max(rates, default=1 / self.at(setting, 1))


def bucket(count: int, buckets: Sequence[int]) -> int:
    """Return the smallest bucket that holds `count` items, or `count` itself beyond the largest and without buckets."""
    return next((size for size in buckets if size >= count), count)
