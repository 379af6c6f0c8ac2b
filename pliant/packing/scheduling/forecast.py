"""Forecasts of an output's length: quantiles in tokens, the distribution that they stand for, and what corrects them.

Between two quantiles the distribution is linear in the log of the length. Below the first one it begins at one token,
beyond the last one it ends at the request's limit.

Shape suffixes: N forecasts, G points of the grid, T horizons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf
from operator import mul

import numpy as np
from numpy.typing import NDArray

from pliant.pickled import pickled_by_fields

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


@pickled_by_fields
@dataclass(frozen=True, slots=True)
class Forecast:
    """What is forecast of one output. `tokens`: its length at `QUANTILES`, ascending.

    `bucket`: upper bound of the predicted class, in tokens; 0: not predicted. `origin`: predicted, late or failed; or
    given: the request says how long its output becomes.
    """

    tokens: tuple[float, ...]
    bucket: int
    origin: str = "predicted"

    @classmethod
    def of_length(cls, tokens: int) -> Forecast:
        """Return the forecast of an output whose length is known."""
        return cls((float(tokens),) * len(QUANTILES), tokens, "given")

    def at_least(self, tokens: int) -> Forecast:
        """Return the forecast of an output that has at least so many tokens."""
        longer = tuple(max(quantile, float(tokens)) for quantile in self.tokens)
        return replace(self, tokens=longer, bucket=max(self.bucket, tokens) if self.bucket else 0)


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


WINDOW = 1000  # outputs


class Past:
    """The lengths of the last `WINDOW` outputs, on a grid."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._latest: deque[int] = deque(maxlen=WINDOW)
        self._counts: NDArray[np.int64] = np.zeros(POINTS, np.int64)

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, tokens: int) -> None:
        """Note an output's length; the oldest is forgotten."""
        at = min(int(np.searchsorted(self._grid.tokens, tokens - 1e-9)), POINTS - 1)
        if len(self._latest) == WINDOW:
            self._counts[self._latest[0]] -= 1
        self._latest.append(at)
        self._counts[at] += 1

    def row(self) -> Floats:
        """Return [G], the shares of outputs of at most as many tokens as the grid's points; 0 everywhere without any."""
        row: Floats = self._counts.cumsum() / max(len(self._latest), 1)
        return row


STEP = 0.02  # in the log of the length
MAX_SHIFT = 1.5  # in the log: enough for a drift, not for another model
FORGET = 0.005  # share of the coverage that each output replaces


@dataclass(frozen=True, slots=True)
class Calibration:
    """Online calibration: shifts of the quantiles' logs, and the share of recent outputs within each shifted quantile.

    Every finished output moves each quantile by a step, up if the output exceeded it and down if not. The two steps are in
    the ratio that keeps a quantile in place once it covers its share of outputs. This is the quantile tracking of adaptive
    conformal inference (Gibbs and Candes, 2021), in the log of the length and for each quantile alone.
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
