"""The seconds that one iteration of generation takes, by the tokens it reads, its sequences and the tokens in the
cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class IterationCost(Protocol):
    """Predicts how long an iteration takes."""

    def seconds(
        self, queries: NDArray[np.int64] | int, sequences: int, cached: NDArray[np.int64] | int
    ) -> NDArray[np.float64]:
        """Return the seconds of an iteration that reads `queries` tokens and gives `sequences` sequences a token each.

        `cached` counts the tokens of all of them in the cache afterwards. Arguments may be arrays, which broadcast.
        """

    def swap_seconds(self, tokens: int) -> float:
        """Return the seconds that it takes to move the keys and values of `tokens` tokens between device and host."""


@dataclass(frozen=True, slots=True)
class Point:
    """One measured iteration."""

    queries: int
    sequences: int
    cached: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LinearCost:
    """Seconds as base + query * Q + sequence * S + token * C + pair * Q * C: Q queries, S sequences, C cached tokens.

    `pair` is for an engine whose attention pairs every query with every cached token, as transformers' does on a CPU.
    It is zero, or nearly so, for one that reads each sequence's own tokens alone, as Pliant's does.
    """

    base: float
    query: float
    sequence: float
    token: float
    pair: float
    swap: float = 0.0  # of one token, one way
    error: float = 0.0  # median relative error over the measured iterations, not in seconds

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

    def scaled(self, by: float) -> LinearCost:
        """Return the costs of `by` times the seconds."""
        seconds = {each.name: by * getattr(self, each.name) for each in fields(self) if each.name != "error"}
        return replace(self, **seconds)


def fit(points: Sequence[Point], swap: float = 0.0) -> LinearCost:
    """Return the non-negative least squares fit to measured iterations; `swap`: seconds to move one token.

    The errors are relative, so that a short iteration counts as much as a long one.
    """
    from scipy.optimize import nnls

    names = ("queries", "sequences", "cached", "seconds")
    q, n, c, s = (np.array([getattr(point, name) for point in points], float) for name in names)
    basis = np.stack([np.ones_like(q), q, n, c, q * c], axis=1)
    scale = np.maximum(basis.max(axis=0), 1e-12)
    coefficients = nnls(basis / scale / s[:, None], np.ones_like(s))[0] / scale
    error = float(np.median(np.abs(basis @ coefficients / s - 1)))
    base, query, sequence, token, pair = (float(x) for x in coefficients)
    return LinearCost(base, query, sequence, token, pair, swap, error)
