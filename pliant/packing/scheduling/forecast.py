"""Forecasts of an output's length: quantiles in tokens, and the distribution that they stand for.

Between two quantiles the distribution is linear in the log of the length. Below the first one it begins at one token,
beyond the last one it ends at the request's limit.

Shape suffixes: N forecasts, G points of the grid, T horizons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul

import numpy as np
from numpy.typing import NDArray

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""The probabilities at which a forecast gives lengths."""
MEDIAN = QUANTILES.index(0.5)
UPPER = QUANTILES.index(0.9)
POINTS = 96  # of the grid on which distributions are kept
HORIZONS = 20  # numbers of iterations ahead for which pages are predicted, at most

_ENDS = (-QUANTILES[0], *QUANTILES, 2 - QUANTILES[-1])  # mirrored at 0 and 1, as the function is flat beyond its ends
_SHARES = tuple((above - below) / 2 for below, above in zip(_ENDS, _ENDS[2:], strict=False))
"""The share of each quantile in the mean: half of the way to its neighbours."""

Floats = NDArray[np.float64]


def ordered(forecast: Sequence[float], limit: int) -> tuple[float, ...]:
    """Return the quantiles in ascending order, each from 1 to `limit` tokens."""
    return tuple(float(x) for x in np.clip(np.maximum.accumulate(np.asarray(forecast, float)), 1.0, limit))


def mean(forecast: Sequence[float]) -> float:
    """Return the expected tokens by a piecewise-linear quantile function through the forecast, flat beyond its ends."""
    return float(sum(map(mul, _SHARES, forecast)))


@dataclass(frozen=True, slots=True)
class Grid:
    """Lengths from 1 to `longest` tokens, evenly spaced in their logs, for rows of cumulative probabilities."""

    longest: int
    tokens: Floats = field(init=False)  # [G]
    logs: Floats = field(init=False)  # [G]
    step: float = field(init=False)  # between two logs
    horizons: Floats = field(init=False)  # [T] numbers of iterations ahead

    def __post_init__(self) -> None:
        longest = max(self.longest, 2)
        object.__setattr__(self, "tokens", np.geomspace(1.0, longest, POINTS))
        object.__setattr__(self, "logs", np.log(self.tokens))
        object.__setattr__(self, "step", float(np.log(longest) / (POINTS - 1)))
        object.__setattr__(self, "horizons", np.unique(np.rint(np.geomspace(1, longest, HORIZONS))))

    def row(self, forecast: Sequence[float], limit: int) -> Floats:
        """Return [G], the probabilities that the output has at most `tokens` tokens."""
        top = float(np.log(max(limit, 2)))
        logs = np.log(np.asarray(forecast, float))
        knots = np.maximum.accumulate(np.array([0.0, *np.minimum(logs, top), top]))
        knots += 1e-9 * np.arange(len(knots))  # so that equal quantiles have all their probability in one place
        row: Floats = np.interp(self.logs, knots, np.array([0.0, *QUANTILES, 1.0]), right=1.0)
        return row

    def below(self, rows_NG: Floats, tokens_NT: Floats) -> Floats:
        """Return [N, T], the probabilities that output n has at most `tokens_NT` tokens."""
        at = np.log(np.maximum(tokens_NT, 1.0)) / self.step
        low = np.minimum(at.astype(np.int64), POINTS - 2)
        share = np.minimum(at - low, 1.0)
        rows, at_NT = rows_NG.ravel(), low + POINTS * np.arange(len(rows_NG))[:, None]
        below: Floats = rows.take(at_NT) * (1 - share) + rows.take(at_NT + 1) * share
        return below

    def alive(self, rows_NG: Floats, generated_N: Floats, horizons_T: Floats) -> Floats:
        """Return [N, T], the probabilities that a sequence of `generated_N` tokens generates over `horizons_T` more.

        A sequence longer than its distribution allows is taken to end with its next token.
        """
        left = 1.0 - self.below(rows_NG, generated_N[:, None] + horizons_T[None, :])
        now = 1.0 - self.below(rows_NG, generated_N[:, None])
        return np.where(now > 1e-6, left / np.maximum(now, 1e-6), 0.0)
