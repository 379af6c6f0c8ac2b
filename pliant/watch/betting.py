"""The bets of the watch against "nothing that matters has changed" (pliant/betting.py). Wealth flows in over time, in all no
more than 1, so each moment starts bets of its own. Two kinds:

- *gross*: the share of a block of answers is one bounded value. Nothing is assumed of the answers inside a block, so that
  repeats are no evidence.
- *course*: how far a window of many blocks lies from what is usual at its time, over its long-run standard deviation, is
  treated as sub-Gaussian. It counts up to `CLIP`: what alarms has lasted several windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from pliant.betting import MOST, Floats, grow

Ints = NDArray[np.int64]

GROSS, POINTS = 1.0, 0.1  # by which a share must move at least: in its normal score (0.5 to 0.84), and as a share
STAKES = (0.5, 0.9)  # of what a gross bet could lose
TILTS = (0.5, 1.0, 2.0, 3.0)  # standard deviations by which a bet on the course expects it to be beyond the tolerance
CLIP = 3.0  # standard deviations


@dataclass(frozen=True, slots=True)
class Tracks:
    """Of each bet [bets]: its wealth, the log of its gain since it was least, and since which observation (Page, Continuous
    inspection schemes, Biometrika, 1954), with how many of those since then are what it bets on."""

    wealth: Floats
    gain: Floats
    since: Ints
    hits: Ints


def new_tracks(bets: int) -> Tracks:
    """Return the tracks of so many bets before the first block."""
    return Tracks(np.zeros(bets), np.zeros(bets), np.zeros(bets, np.int64), np.zeros(bets, np.int64))


def bet(tracks: Tracks, log_factors: Floats, fresh: float, before: int, hits: Ints) -> Tracks:
    """Return the tracks after a block: `fresh` flows in and is bet already; `before` it came so many observations, and
    `hits` [bets] of its own are what each bet is about."""
    factors = np.exp(np.minimum(log_factors, np.log(MOST)))
    begins = tracks.gain <= 0
    return Tracks(
        grow(tracks.wealth, factors, fresh),
        np.where(begins, 0.0, tracks.gain) + log_factors,
        np.where(begins, before, tracks.since),
        np.where(begins, 0, tracks.hits) + hits,
    )


def gross_bands(shares: Floats) -> tuple[Floats, Floats]:
    """Return the least and the largest shares [n] that are no gross change from these [n]."""
    scores = ndtri(shares)
    return np.minimum(ndtr(scores - GROSS), shares - POINTS), np.maximum(ndtr(scores + GROSS), shares + POINTS)


def gross_factors(shares: Floats, bands: tuple[Floats, Floats]) -> Floats:
    """Return the logs of the factors [n, 2, stakes] of bets on more and on less than the bands [n], for a block's shares."""
    low, high = np.clip(bands[0], 0.0, 1.0), np.clip(bands[1], 0.0, 1.0)
    gains = np.stack([(shares - high) / high, (low - shares) / (1 - low)], axis=1)  # -1 is all of a stake
    factors: Floats = np.log1p(gains[:, :, None] * np.array(STAKES))
    return factors


def course_factors(deviations: Floats, tolerance: Floats) -> Floats:
    """Return the logs of the factors [n, 2, tilts] of bets on more and on less, for a window's deviations [n] and how much
    of them does not matter [n], both in long-run standard deviations."""
    beyond = np.minimum(np.stack([deviations - tolerance, -deviations - tolerance], axis=1), CLIP)
    tilts = np.array(TILTS)
    factors: Floats = beyond[:, :, None] * tilts - tilts**2 / 2
    return factors
