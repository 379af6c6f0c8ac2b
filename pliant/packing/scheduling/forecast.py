"""What a prediction says of an output's length: quantiles in tokens, and the distribution they stand for.

Between two quantiles the distribution is linear in the log of the length; below the first it begins at one token, beyond
the last it ends at the limit of the request. Shapes: N forecasts, L levels, G points of a grid, T horizons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
MEDIAN = LEVELS.index(0.5)
UPPER = LEVELS.index(0.9)
POINTS = 96  # of the grid on which distributions are kept
HORIZONS = 20

Floats = NDArray[np.float64]


def ordered(forecast: Sequence[float], limit: int) -> tuple[float, ...]:
    """The quantiles ascending, from 1 to `limit` tokens."""
    return tuple(float(x) for x in np.clip(np.maximum.accumulate(np.asarray(forecast, float)), 1.0, limit))


def mean(forecast: Sequence[float]) -> float:
    """The expected tokens of a piecewise-linear quantile function through the forecast, flat beyond its ends."""
    levels, tokens = np.array([0.0, *LEVELS, 1.0]), np.array([forecast[0], *forecast, forecast[-1]])
    return float(np.sum(np.diff(levels) * (tokens[1:] + tokens[:-1]) / 2))


@dataclass(frozen=True, slots=True)
class Grid:
    """Lengths from 1 to `longest` tokens, even in their logs; a row of cumulative probabilities on it is a distribution."""

    longest: int
    tokens: Floats = field(init=False)  # [G]
    logs: Floats = field(init=False)  # [G]
    step: float = field(init=False)  # between two of those
    horizons: Floats = field(init=False)  # [T] iterations ahead at which pages are predicted

    def __post_init__(self) -> None:
        longest = max(self.longest, 2)
        object.__setattr__(self, "tokens", np.geomspace(1.0, longest, POINTS))
        object.__setattr__(self, "logs", np.log(self.tokens))
        object.__setattr__(self, "step", float(np.log(longest) / (POINTS - 1)))
        object.__setattr__(self, "horizons", np.unique(np.rint(np.geomspace(1, longest, HORIZONS))))

    def row(self, forecast: Sequence[float], limit: int) -> Floats:
        """[G] the probability that the output has at most so many tokens."""
        top = float(np.log(max(limit, 2)))
        logs = np.log(np.asarray(forecast, float))
        knots = np.maximum.accumulate(np.array([0.0, *np.minimum(logs, top), top]))
        knots += 1e-9 * np.arange(len(knots))  # equal quantiles: all their probability in one place
        row: Floats = np.interp(self.logs, knots, np.array([0.0, *LEVELS, 1.0]), right=1.0)
        return row

    def below(self, rows_NG: Floats, tokens_NT: Floats) -> Floats:
        """[N, T] probabilities that output n has at most `tokens_NT` tokens."""
        at = np.log(np.maximum(tokens_NT, 1.0)) / self.step
        low = np.minimum(at.astype(np.int64), POINTS - 2)
        share = np.minimum(at - low, 1.0)
        rows, at_NT = rows_NG.ravel(), low + POINTS * np.arange(len(rows_NG))[:, None]
        below: Floats = rows.take(at_NT) * (1 - share) + rows.take(at_NT + 1) * share
        return below

    def alive(self, rows_NG: Floats, made_N: Floats, horizons_T: Floats) -> Floats:
        """[N, T] probabilities that a sequence which has made `made_N` tokens makes more than `horizons_T` further ones.

        A sequence that has outlived its distribution is taken to end any moment but not before the next token.
        """
        left = 1.0 - self.below(rows_NG, made_N[:, None] + horizons_T[None, :])
        now = 1.0 - self.below(rows_NG, made_N[:, None])
        return np.where(now > 1e-6, left / np.maximum(now, 1e-6), 0.0)
