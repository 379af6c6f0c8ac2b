"""How much a larger level's answer counts beside the one so far (Tabi, Eq. 6), fitted on texts that go on.

The weight that makes the mixture most likely is exact: its log-likelihood is concave in the weight. Where the mixture
answers no better than the larger level alone, the larger level stands alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]

LEAST = 1e-12  # probability of a label


def likeliest(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """The weight of `after` in [0, 1] of the highest likelihood."""
    rows = np.arange(len(label_R))
    before_R, after_R = (np.maximum(answer_RK[rows, label_R], LEAST) for answer_RK in (before_RK, after_RK))
    rise_R = after_R - before_R

    def slope(weight: float) -> float:
        """Of the mean log-likelihood; it falls with the weight."""
        return float((rise_R / (before_R + weight * rise_R)).mean())

    if slope(1.0) >= 0:
        return 1.0
    return float(brentq(slope, 0.0, 1.0)) if slope(0.0) > 0 else 0.0


def weight(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """The weight to use: the likeliest, or 1 where that answers fewer texts correctly than the larger level alone."""
    if not len(label_R):
        return 1.0
    found = likeliest(before_RK, after_RK, label_R)
    mixed = (found * after_RK + (1 - found) * before_RK).argmax(axis=1) == label_R
    alone = after_RK.argmax(axis=1) == label_R
    return found if mixed.mean() > alone.mean() else 1.0


def published(before_RK: Floats, after_RK: Floats, label_R: NDArray[np.integer]) -> float:
    """In proportion to the accuracies on re-routed texts, as published."""
    if not len(label_R):
        return 1.0
    small = float((before_RK.argmax(axis=1) == label_R).mean())
    large = float((after_RK.argmax(axis=1) == label_R).mean())
    return large / (small + large) if small + large else 1.0
