"""The detector over whole streams: the evidence after every block, as `pliant.watch.Detector` would have it, compiled."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from pliant.watch.betting import Bets, reserve
from pliant.watch.binning import coarse_bins, merge
from pliant.watch.detector import Stream, bets_of, learn
from pliant.watch.reference import reference_of

_CHUNK = 4096  # blocks


def evidence(stream: Stream, counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the evidence after each block [blocks] from the counts of the stream's bins [blocks, bins].

    It is 1 while the stream is learnt. An alarm ends refinements in the detector, and not here: only what comes before a
    first alarm is the same.
    """
    seen = np.cumsum(counts.sum(1))
    learnt = int(np.searchsorted(seen, stream.burn_in)) + 1
    result = np.ones(len(counts))
    if learnt >= len(counts):
        return result
    reference, used, wealth = learn(stream, counts[:learnt].sum(0)), 0, 0.0
    places = coarse_bins(stream.binning, reference.binning)
    begin = int(seen[learnt - 1])
    merged = merge(counts, places, reference.binning.bins)
    ends = [int(np.searchsorted(seen, begin * 2**level)) + 1 for level in range(1, stream.refinements + 1)]
    for level, end in enumerate([*ends, len(counts)], 1):
        start, end = learnt, min(end, len(counts))
        if start < end:
            result[start:end], wealth = _stretch(
                stream, bets_of(stream, reference, used), merged[start:end], (float(seen[start - 1] - begin), wealth)
            )
        learnt = max(start, end)
        if level <= len(ends) and ends[level - 1] <= len(counts) and result[learnt - 1] <= 1:
            reference, used = reference_of(reference.binning, merged[:learnt].sum(0)), level
    return result


def _stretch(
    stream: Stream, bets: Bets, counts: NDArray[np.int64], former: tuple[float, float]
) -> tuple[NDArray[np.float64], float]:
    """Return the evidence after each block of counts [blocks, bins], and the last wealth in bets.

    `former`: the observations since the bets began, and the wealth in bets, before these blocks.
    """
    after = np.concatenate([[former[0]], former[0] + np.cumsum(counts.sum(1))])
    left = np.array([reserve(observations, stream.pace) for observations in after])
    factors = np.concatenate(
        [np.exp(np.minimum(counts[at : at + _CHUNK] @ bets.log_factors, 700.0)) for at in range(0, len(counts), _CHUNK)]
    )
    wealth = _totals(factors, -np.diff(left), bets.weights, former[1])
    return wealth + left[1:], float(wealth[-1])


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _totals(
    factors: NDArray[np.float64], fresh: NDArray[np.float64], weights: NDArray[np.float64], initial: float
) -> NDArray[np.float64]:
    """Return the summed wealth [T] from factors [T, bets] and what flows in for each block [T]; first it is `initial`."""
    wealth, result = initial * weights, np.empty(len(fresh))
    for step in range(len(fresh)):
        total = 0.0
        for bet in range(len(weights)):
            wealth[bet] = min((wealth[bet] + fresh[step] * weights[bet]) * factors[step, bet], 1e100)
            total += wealth[bet]
        result[step] = total
    return result
