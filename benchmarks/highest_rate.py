"""Finds the highest rate at which an endpoint keeps an objective: by doubling, then halfway between two rates.

Knows no endpoint: whoever tries the rates may take turns between several searches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Trials = Sequence[tuple[float, bool]]
"""Rates that were tried, and whether the objective was kept at each."""


def highest(trials: Trials) -> float:
    """Return the highest rate at which the objective was kept, below all at which it was not; 0: there is none."""
    missed = _lowest_missed(trials)
    return max((rate for rate, kept in trials if kept and rate < missed), default=0.0)


def next_rate(trials: Trials, first: float) -> float:
    """Return the rate to try next, after `first`: twice as much, or half, or between two the mean of their logarithms."""
    if not trials:
        return first
    kept, missed = highest(trials), _lowest_missed(trials)
    if math.isinf(missed):
        return 2 * kept
    return math.sqrt(kept * missed) if kept else missed / 2


def _lowest_missed(trials: Trials) -> float:
    return min((rate for rate, kept in trials if not kept), default=math.inf)
