"""Fits how much a larger level's answer counts beside the answer so far (Tabi, Eq. 6), on texts that go on.

The likeliest weight is exact, since the log-likelihood of the mixture is concave in it. Where the mixture is no more
accurate than the larger level alone, the larger level alone is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]

LEAST = 1e-12  # probability that a label has at least


def likeliest(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """Return the weight of `after`, from 0 to 1, with the highest likelihood of the labels."""
    rows = np.arange(len(label_R))
    before_R, after_R = (np.maximum(answer_RK[rows, label_R], LEAST) for answer_RK in (before_RK, after_RK))
    rise_R = after_R - before_R

    def slope(weight: float) -> float:
        """Return the derivative of the mean log-likelihood, which falls with the weight."""
        return float((rise_R / (before_R + weight * rise_R)).mean())

    if slope(1.0) >= 0:
        return 1.0
    return float(brentq(slope, 0.0, 1.0)) if slope(0.0) > 0 else 0.0


def weight(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """Return the weight to use: the likeliest one if it is more accurate than the larger level alone, else 1."""
    if not len(label_R):
        return 1.0
    likely = likeliest(before_RK, after_RK, label_R)
    mixed = (likely * after_RK + (1 - likely) * before_RK).argmax(axis=1) == label_R
    alone = after_RK.argmax(axis=1) == label_R
    return likely if mixed.mean() > alone.mean() else 1.0


def published(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """Return the published weight, in proportion to the two accuracies on re-routed texts."""
    if not len(label_R):
        return 1.0
    small = float((before_RK.argmax(axis=1) == label_R).mean())
    large = float((after_RK.argmax(axis=1) == label_R).mean())
    return large / (small + large) if small + large else 1.0
