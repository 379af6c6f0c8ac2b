"""A bet against a promised accuracy, at odds that are fair if the promise just holds.

The bets are the mixture over a grid of Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
JRSS B, 2023. If the promise is kept, the wealth ever exceeds 20 with a probability of at most 5%, over all time (Ville's
inequality). Part of the wealth is held in reserve and bet bit by bit, so that losses in good times do not hide a promise
that breaks later (fixed share: Herbster and Warmuth, Tracking the best expert, 1998).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # of the test: a promise is broken when the wealth reaches 1 / (1 - CONFIDENCE)
BETS = 12  # alternatives to the promise, each multiplying the promised odds of a wrong answer by a factor
LEAST, MOST = 1.1, 6.0  # the smallest and the largest factor
FACTORS = np.geomspace(LEAST, MOST, BETS)
BET_AT_ONCE = 0.5  # share of the wealth that is bet from the first label on
PACE = 200.0  # labels; the reserve is nearly whole before so many
MAX_WEALTH = 1e100  # keeps the wealth finite

Wealth = NDArray[np.float64]


def initial_wealth() -> Wealth:
    """Return the wealth in each bet [BETS] before the first label; the rest of the 1 is in `reserve`."""
    return np.full(BETS, BET_AT_ONCE / BETS)


def reserve(labels: int) -> float:
    """Return the wealth that is not yet bet after `labels` labels. It never reaches 0."""
    return (1 - BET_AT_ONCE) / (1 + math.log1p(labels / PACE))


def bet(wealth: Wealth, labels: int, wrong: bool | NDArray[np.bool_], promised: float) -> Wealth:
    """Return the wealth in each bet [..., BETS] after one more answer was `wrong` [...] or not; `labels` came before
    it.

    Every bet is multiplied by a ratio of likelihoods, whose mean is 1 if wrong answers are as frequent as promised, and
    less if they are rarer. `promised` may differ from label to label, but must be known before the label.
    """
    allowed = min(max(1 - promised, 1e-6), 1 - 1e-6)
    odds = allowed / (1 - allowed) * FACTORS
    rate = odds / (1 + odds)
    factor = np.where(np.expand_dims(wrong, -1), rate / allowed, (1 - rate) / (1 - allowed))
    fresh = (reserve(labels) - reserve(labels + 1)) / BETS
    return np.minimum(wealth * factor + fresh, MAX_WEALTH)


def evidence(wealth: Wealth, labels: int) -> NDArray[np.float64]:
    """Return the whole wealth [...] from the bets [..., BETS]; it starts at 1."""
    total: NDArray[np.float64] = np.sum(wealth, axis=-1) + reserve(labels)
    return total
