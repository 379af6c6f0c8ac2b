"""Forecasts kept honest while they are used: how often an output stayed within each quantile, and the shift that mends it.

Every finished output moves each level's quantile by a step, up where the output exceeded it and down where not, in the
ratio that leaves it still when it covers what it says: the quantile tracking of adaptive conformal inference (Gibbs and
Candes, 2021), in the log of the length and for each level alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

from pliant.packing.forecast import LEVELS, ordered

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

    def after(self, used: Sequence[float], tokens: int) -> Calibration:
        """With one more output of `tokens` for which the forecast `used` (as `apply` gave it) had been made."""
        within = [float(tokens <= quantile) for quantile in used]
        moved = [
            min(max(shift + STEP * (level - inside), -MOST), MOST)
            for shift, level, inside in zip(self.shifts, LEVELS, within, strict=True)
        ]
        forget = max(FORGET, 1 / (self.seen + 1))
        coverage = [(1 - forget) * old + forget * inside for old, inside in zip(self.coverage, within, strict=True)]
        return Calibration(tuple(moved), tuple(coverage), self.seen + 1)
