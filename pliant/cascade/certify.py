"""Tests whether a cascade's accuracy holds beyond the texts that it was tuned on: one-sided bounds, and a fixed order.

A promise is about a mean of differences: correct (0 or 1) minus what it is compared with, which is the large model's
correctness on the same text, or a target. Candidates are tested from the safest to the riskiest, up to the first
failure, so that all that passed hold together at one confidence (fixed-sequence testing: Angelopoulos et al., Learn
then Test, 2021). The order must not come from the texts of the test. All bounds count texts as independent: equal ones
stand here once (training/groups.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

Floats = NDArray[np.float64]


def lower_bounds(
    mean: NDArray[np.floating] | float,
    square: NDArray[np.floating] | float,
    count: int,
    confidence: float,
    horizon: int | None = None,
) -> Floats:
    """Return lower bounds at `confidence` of mean differences, in the population or over `horizon` further texts.

    `mean`, `square`: the means of the differences and of their squares over `count` texts. It is a normal bound with a
    correction for rare losses, and counts one loss more than was seen: that nothing has gone wrong yet is no proof.
    """
    z = float(ndtri(confidence))
    further = 1 / horizon if horizon else 0.0
    padded, padded_square = (mean * count - 1) / (count + 1), (square * count + 1) / (count + 1)
    spread = np.sqrt((padded_square - padded**2) * (1 / count + further))
    # Few losses are skewed: the next term of a Poisson bound, k + 1 + z sqrt(k + 1) + (z^2 - 1) / 3. Further texts are
    # skewed the other way.
    tail = (z * z - 1) / 3 * max(0.0, 1 / count - further)
    return np.asarray(mean - 1 / count - z * spread - tail)


def clopper_pearson(correct_R: NDArray[np.bool_], confidence: float) -> float:
    """Return the one-sided lower bound of the share of correct texts (Clopper and Pearson 1934), exact for any count."""
    right, count = int(np.sum(correct_R)), len(correct_R)
    return float(betaincinv(right, count - right + 1, 1 - confidence)) if right else 0.0
