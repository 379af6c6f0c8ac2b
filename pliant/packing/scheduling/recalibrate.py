"""Online calibration of forecasts: how often outputs stayed within each quantile, and the shift that corrects it.

Every finished output moves each quantile by a step, up if the output exceeded it and down if not. The two steps are in
the ratio that keeps a quantile in place once it covers its share of outputs. This is the quantile tracking of adaptive
conformal inference (Gibbs and Candes, 2021), in the log of the length and for each quantile alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf

from pliant.packing.scheduling.forecast import QUANTILES, ordered

STEP = 0.02  # in the log of the length
MAX_SHIFT = 1.5  # in the log: enough for a drift, not for another model
FORGET = 0.005  # share of the coverage that each output replaces


@dataclass(frozen=True, slots=True)
class Calibration:
    """Shifts of the quantiles' logs, and the share of outputs within each shifted quantile, where recent ones count
    more.
    """

    shifts: tuple[float, ...] = (0.0,) * len(QUANTILES)
    coverage: tuple[float, ...] = QUANTILES
    seen: int = 0  # outputs

    def apply(self, forecast: Sequence[float], limit: int) -> tuple[float, ...]:
        """Return the forecast to use: shifted, in ascending order, from 1 to `limit` tokens."""
        return ordered([tokens * exp(shift) for tokens, shift in zip(forecast, self.shifts, strict=True)], limit)

    def after(self, used: Sequence[float], tokens: int, limit: float = inf) -> Calibration:
        """Return the calibration after one more output of `tokens`, whose forecast was `used` (as `apply` gave it).

        A quantile at the request's `limit` stays as it is, since no output can exceed it.
        """
        forget = max(FORGET, 1 / (self.seen + 1))
        shifts, coverage = list(self.shifts), list(self.coverage)
        for at, (level, quantile) in enumerate(zip(QUANTILES, used, strict=True)):
            if quantile < limit:
                inside = float(tokens <= quantile)
                shifts[at] = min(max(shifts[at] + STEP * (level - inside), -MAX_SHIFT), MAX_SHIFT)
                coverage[at] += forget * (inside - coverage[at])
        return Calibration(tuple(shifts), tuple(coverage), self.seen + 1)
