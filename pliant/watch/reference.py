"""What a stream looked like when its model was fine, and how far its shares may move before that matters.

A share may move by a factor of its odds that does not matter (the tolerance: over a day, traffic is not one distribution),
and beyond what is not known of it: a learnt share lies within a confidence interval. The interval is Chernoff's for a mean
of bounded variables (Hoeffding, Probability inequalities for sums of bounded random variables, 1963, theorem 1), which
holds at every size and needs no quantile of a distribution. Odds, and not differences, since a shift of a quantity moves
the odds of "at least x" by about the same factor at every x, while 5 points are nothing to a share of 50% and all of one
of 1%.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from pliant.errors import InputError
from pliant.watch.binning import Binning, Counts

Shares = NDArray[np.float64]
_HALVINGS = 60  # of an interval of length 1: to the precision of a float


@dataclass(frozen=True, slots=True)
class Reference:
    """The shares of a stream's bins [bins], and how many observations they rest on (infinite where they are stated).

    Raises `InputError` if shares are negative, do not sum to 1 (to one in a million), or are not as many as the bins.
    """

    binning: Binning
    shares: tuple[float, ...]
    size: float = math.inf

    def __post_init__(self) -> None:
        if len(self.shares) != self.binning.bins:
            raise InputError("shares", f"for {len(self.shares)} bins", f"for {self.binning.bins}")
        if not all(share >= 0 for share in self.shares) or not abs(sum(self.shares) - 1) <= 1e-6:
            raise InputError("shares", self.shares, "at least 0, with the sum 1")
        if not self.size > 0:
            raise InputError("size", self.size, "above 0")

    @property
    def tails(self) -> Shares:
        """Return the shares at or above each edge [bins - 1]."""
        return np.cumsum(np.asarray(self.shares)[::-1])[::-1][1:]


def reference_of(binning: Binning, counts: Counts) -> Reference:
    """Return the reference that rests on these counts [bins]. Raises `InputError` without observations."""
    size = int(np.sum(counts))
    return Reference(binning, tuple((np.asarray(counts) / max(size, 1)).tolist()), size)


def bounds(shares: Shares, size: float, alpha: float) -> tuple[Shares, Shares]:
    """Return the least and the largest probability [n] that a share [n] of `size` observations leaves possible.

    Each bound is wrong with a probability of at most `alpha`, at every size.
    """
    shares = np.clip(shares, 0.0, 1.0)
    if math.isinf(size):
        return shares, shares
    surprise = math.log(1 / alpha) / size
    return 1 - _largest(1 - shares, surprise), _largest(shares, surprise)


def tail_margin(size: float, alpha: float) -> float:
    """Return by how much all shares "at or above x" of `size` observations may be off at once, wherever x lies.

    Wrong with a probability of at most `alpha` (Massart, The tight constant in the Dvoretzky-Kiefer-Wolfowitz inequality,
    Annals of Probability, 1990), also for an x that was chosen by the observations.
    """
    return math.sqrt(math.log(2 / alpha) / (2 * size))


def move_odds(shares: Shares, factor: float) -> Shares:
    """Return the shares [n] with their odds multiplied by a factor; 0 and 1 stay."""
    return shares * factor / (1 - shares + shares * factor)


def _largest(shares: Shares, surprise: float) -> Shares:
    """Return the largest p [n] with KL(share, p) <= surprise, in nats and as of two coins, rounded up."""
    low, high = shares.copy(), np.ones_like(shares)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        beyond = rel_entr(shares, middle) + rel_entr(1 - shares, 1 - middle) > surprise
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return high
