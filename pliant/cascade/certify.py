"""Whether a cascade keeps its promise beyond the texts that it was tuned on: one-sided bounds, and tests in a fixed order.

A promise is about a mean of differences: correct (0 or 1) less what it is compared with, the large model's correctness on
the same text or a target. Candidates are tested from the safest down and the first failure ends it, so that all that
passed hold together at one level (fixed-sequence testing: Angelopoulos et al., Learn then Test, 2021). The order must not
come from the texts that are tested with.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Floats = NDArray[np.float64]


def lower_bound(difference_R: Floats, confidence: float, horizon: int | None = None) -> float:
    """What the mean difference does not fall below, at `confidence`: of the population, or of any `horizon` further texts.

    Normal with a correction for rare losses, and with one loss more than was seen: where nothing has gone wrong yet, not
    everything is known.
    """
    mean, square = float(np.mean(difference_R)), float(np.mean(np.square(difference_R)))
    return float(lower_bounds(mean, square, len(difference_R), confidence, horizon))


def lower_bounds(
    mean: NDArray[np.floating] | float,
    square: NDArray[np.floating] | float,
    count: int,
    confidence: float,
    horizon: int | None = None,
) -> Floats:
    """`lower_bound` from the mean of differences over `count` texts, and of their squares. Elementwise."""
    z = float(ndtri(confidence))
    further = 1 / horizon if horizon else 0.0
    padded, padded_square = (mean * count - 1) / (count + 1), (square * count + 1) / (count + 1)
    spread = np.sqrt((padded_square - padded**2) * (1 / count + further))
    # Few losses are skewed: the next term of a Poisson bound, k + 1 + z sqrt(k + 1) + (z^2 - 1) / 3. Further texts are
    # skewed the other way.
    tail = (z * z - 1) / 3 * max(0.0, 1 / count - further)
    return np.asarray(mean - 1 / count - z * spread - tail)


def last_passing(candidates: int, bound: Callable[[int], float], least: float) -> int | None:
    """The number of the last candidate before the first whose bound is below `least`; None where the first fails."""
    passed = None
    for number in range(candidates):
        if bound(number) < least:
            break
        passed = number
    return passed


def wilson(correct_R: NDArray[np.bool_], confidence: float) -> float:
    """The one-sided lower bound of a share (Wilson 1927)."""
    count, share, z = len(correct_R), float(np.mean(correct_R)), float(ndtri(confidence))
    centre = share + z * z / (2 * count)
    spread = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return float((centre - spread) / (1 + z * z / count))
