"""Seconds that one iteration of generation takes, by its queries, sequences and cached tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class IterationCost(Protocol):
    """How long an iteration takes. Every argument may be an array; they broadcast."""

    def seconds(
        self, queries: NDArray[np.int64] | int, sequences: int, cached: NDArray[np.int64] | int
    ) -> NDArray[np.float64]:
        """`queries`: tokens read; `sequences` that get a token; `cached`: tokens of all of them in the cache after."""

    def swap_seconds(self, tokens: int) -> float:
        """To move so many tokens' keys and values between device and host."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measured iteration."""

    queries: int
    sequences: int
    cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LinearSteps:
    """base + query * Q + sequence * S + token * C + pair * Q * C.

    `pair` is for an engine whose attention reads every pair of a query and a cached token (on CPU); it is zero for one
    that reads each sequence's own tokens (fused attention on a GPU).
    """

    base: float
    query: float
    sequence: float
    token: float
    pair: float
    swap: float = 0.0  # of one token
    error: float = 0.0  # median relative error over the points that it was fitted to

    def seconds(
        self, queries: NDArray[np.int64] | int, sequences: int, cached: NDArray[np.int64] | int
    ) -> NDArray[np.float64]:
        q, c = np.asarray(queries, float), np.asarray(cached, float)
        seconds: NDArray[np.float64] = (
            self.base + self.query * q + self.sequence * sequences + self.token * c + self.pair * q * c
        )
        return seconds

    def swap_seconds(self, tokens: int) -> float:
        return self.swap * tokens


def fit(points: Sequence[Point], swap: float = 0.0) -> LinearSteps:
    """The non-negative least squares fit of relative errors, so that a short iteration counts as much as a long one."""
    from scipy.optimize import nnls

    names = ("queries", "sequences", "cached", "seconds")
    q, n, c, s = (np.array([getattr(point, name) for point in points], float) for name in names)
    basis = np.stack([np.ones_like(q), q, n, c, q * c], axis=1)
    scale = np.maximum(basis.max(axis=0), 1e-12)
    found = nnls(basis / scale / s[:, None], np.ones_like(s))[0] / scale
    error = float(np.median(np.abs(basis @ found / s - 1)))
    base, query, sequence, token, pair = (float(x) for x in found)
    return LinearSteps(base, query, sequence, token, pair, swap, error)
