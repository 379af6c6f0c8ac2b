"""Two services compared in many short turns: the median of the ratios of pairs, and how far it is to be trusted.

What else a machine does changes a turn's throughput by several percent, and lasts longer than a turn. So the two take turns
of a second or two, every other pair in the opposite order, and a pair's ratio is of neighbours. The interval is the
bootstrap's (Efron 1979): percentiles of the medians of pairs drawn with replacement.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pliant.progress import Progress, silent

WITHOUT, WITH = "without", "with"
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Comparison:
    """The figures of each pair of turns, such as requests/s."""

    without: tuple[float, ...]
    with_it: tuple[float, ...]

    @property
    def pairs(self) -> int:
        return len(self.without)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Return what is reached with it over what is reached without, by pair."""
        return tuple(b / a for a, b in zip(self.without, self.with_it, strict=True))

    @property
    def median(self) -> float:
        return float(np.median(self.ratios))

    @property
    def interval(self) -> tuple[float, float]:
        """Return where the median lies with a confidence of LEVEL."""
        drawn = np.random.default_rng(0).choice(self.ratios, (RESAMPLES, self.pairs))
        low, high = np.quantile(np.median(drawn, axis=1), ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
        return float(low), float(high)

    @property
    def half_width(self) -> float:
        low, high = self.interval
        return (high - low) / 2

    def needed(self, width: float) -> int:
        """Return about how many pairs make the interval's half-width `width`: it shrinks with the square root of them."""
        return math.ceil(self.pairs * (self.half_width / width) ** 2)


@dataclass(frozen=True, slots=True)
class PairsConfig:
    """Pairs are measured until the interval is narrow enough or the time is up, but `least` in any case."""

    seconds: float
    width: float = 0.01  # half of the interval's, as a share
    least: int = 8
    trusted: int = 20  # pairs, below which an interval is too uncertain itself to end the measurement


def compare(
    measure: Callable[[str], float],
    config: PairsConfig,
    progress: Progress = silent,
    clock: Callable[[], float] = time.monotonic,
) -> Comparison:
    """Return what `measure` gives for turns of WITHOUT and WITH."""
    figures: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    begun, comparison = clock(), Comparison((), ())
    while not _enough(comparison, config, clock() - begun):
        for name in (WITHOUT, WITH) if comparison.pairs % 2 == 0 else (WITH, WITHOUT):
            figures[name].append(measure(name))
        comparison = Comparison(tuple(figures[WITHOUT]), tuple(figures[WITH]))
        progress(min(99, round(100 * (clock() - begun) / config.seconds)), 100)
    progress(100, 100)
    return comparison


def _enough(comparison: Comparison, config: PairsConfig, elapsed: float) -> bool:
    if comparison.pairs < config.least:
        return False
    narrow = comparison.pairs >= config.trusted and comparison.half_width <= config.width
    return narrow or elapsed >= config.seconds
