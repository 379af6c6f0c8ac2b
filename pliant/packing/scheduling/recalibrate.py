"""Forecasts kept honest while they are used: how often an output stayed within each quantile, and the shift that mends it.

Every finished output moves each level's quantile by a step, up where the output exceeded it and down where not, in the
ratio that leaves it still when it covers what it says: the quantile tracking of adaptive conformal inference (Gibbs and
Candes, 2021), in the log of the length and for each level alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf

from pliant.packing.scheduling.forecast import LEVELS, ordered

STEP = 0.02  # in the log of the length
MOST = 1.5  # a shift at most, in the log: an observed drift, not another model
FORGET = 0.005  # of the coverage so far, with every output


@dataclass(frozen=True, slots=True)
class Calibration:
    """Shifts of the quantiles' logs, and the coverage of the quantiles as they were shifted (recent outputs count more)."""

    shifts: tuple[float, ...] = (0.0,) * len(LEVELS)
    coverage: tuple[float, ...] = LEVELS
    seen: int = 0

    def apply(self, forecast: Sequence[float], limit: int) -> tuple[float, ...]:
        """The forecast as it is to be used: shifted, ascending, within 1 and `limit` tokens."""
        return ordered([tokens * exp(shift) for tokens, shift in zip(forecast, self.shifts, strict=True)], limit)

    def after(self, used: Sequence[float], tokens: int, limit: float = inf) -> Calibration:
        """With one more output of `tokens` for which the forecast `used` (as `apply` gave it) had been made.

        A quantile at the request's `limit` is left alone: every output stays within it, whatever its level says.
        """
        forget = max(FORGET, 1 / (self.seen + 1))
        shifts, coverage = list(self.shifts), list(self.coverage)
        for at, (level, quantile) in enumerate(zip(LEVELS, used, strict=True)):
            if quantile < limit:
                inside = float(tokens <= quantile)
                shifts[at] = min(max(shifts[at] + STEP * (level - inside), -MOST), MOST)
                coverage[at] += forget * (inside - coverage[at])
        return Calibration(tuple(shifts), tuple(coverage), self.seen + 1)
