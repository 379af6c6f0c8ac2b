"""Bets against "nothing has changed": what a block of counts multiplies each bet's wealth by.

Null hypothesis: whatever came before, the probability of each bin, and of "at or above each edge", is within its band
(reference.py). A bet is a positive factor for each bin, [bins]. Divided by the largest mean that the factors can have
within the bands, it multiplies a wealth by 1 at most on average, so a sum of wealths that starts at 1 ever exceeds 1/alpha
with a probability of at most alpha, over all time (Ville's inequality; Ramdas, Grünwald, Vovk and Shafer, Game-theoretic
statistics and safe anytime-valid inference, Statistical Science, 2023). The bets are

- for each bin and for each edge: likelihood ratios that expect the odds to be some factor larger, or smaller;
- for numbers: tilts, that expect all values to move up or down by so many standard deviations (normal scores of the
  reference). A shift of a number is noticed by these before any single bin would show it.

A bet need not start with the first observation: change comes late. Wealth flows in over time from a reserve, in all no more
than 1, so each moment starts bets of its own (mixtures over the time of change: Shin, Ramdas and Rinaldo, E-detectors,
New England Journal of Statistics in Data Science, 2024, whose sum here has weights, so as to hold for ever).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pliant.watch.binning import Counts
from pliant.watch.reference import Reference, Shares, bounds, move_odds, tail_margin

Wealth = NDArray[np.float64]
Kind = Literal["bin", "edge", "tilt"]
Direction = Literal["both", "up", "down"]

ODDS = (1.5, 2.2, 5.0)  # by which a bet on a bin or an edge expects the odds to differ from the band's end
TILTS = (0.3, 0.6, 1.0, 1.6, 2.5)  # standard deviations by which a tilt expects values to move
WEIGHTS: tuple[tuple[Kind, float], ...] = (("tilt", 0.5), ("edge", 0.3), ("bin", 0.2))  # of a stream of numbers
MAX_WEALTH = 1e100  # keeps the wealth finite
_MAX_LOG = 700.0  # exp of more is infinite


@dataclass(frozen=True, slots=True)
class Bet:
    """What a bet expects: more (`up`) or less of a bin, of the values from an edge on (`place`: the bin that begins
    there), or all values to be larger or smaller (its `place` is the middle edge's)."""

    kind: Kind
    place: int
    up: bool


@dataclass(frozen=True, slots=True)
class Bets:
    """All bets of a stream: `log_factors` [bins, bets], their shares of the inflow `weights` [bets] with the sum 1, and
    what each counts as a hit, `hits` [bins, bets]."""

    items: tuple[Bet, ...]
    log_factors: NDArray[np.float64]
    weights: Wealth
    hits: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bands:
    """The least and largest probabilities of bins [bins], and of "at or above" each edge [bins - 1], that are in order."""

    bins: tuple[Shares, Shares]
    tails: tuple[Shares, Shares]


def bands(reference: Reference, burst: float, tolerance: float, alpha: float, fine: int) -> Bands:
    """Return the bands. `burst`: observations count for one (see `make_bets`); `tolerance`: the factor of odds that
    does not matter. All bounds together are wrong with a probability of at most `alpha`; the reference's bins were
    chosen from `fine` ones: any run of these could have been one, and any edge an edge.

    The share above an edge has two bounds, of which the tighter counts: one for all edges at once, which is better in
    the middle, and its own, which is better at the ends.
    """
    size, tails = reference.size / burst, reference.tails
    runs = fine * (fine + 1) // 2 if reference.binning.ordered else fine
    low, high = bounds(np.asarray(reference.shares), size, alpha / (4 * runs))
    lower, upper = bounds(tails, size, alpha / (8 * fine))
    margin = tail_margin(size, alpha / 4)  # 1/2 for bins, 1/4 for each of the tails' bounds
    lower, upper = np.maximum(lower, tails - margin), np.minimum(upper, tails + margin)
    return Bands(_widen(low, high, tolerance), _widen(np.minimum(lower, tails), np.maximum(upper, tails), tolerance))


def _widen(low: Shares, high: Shares, tolerance: float) -> tuple[Shares, Shares]:
    return move_odds(low, 1 / tolerance), move_odds(high, tolerance)


def make_bets(reference: Reference, band: Bands, direction: Direction = "both", burst: float = 1.0) -> Bets:
    """Return the bets against a stream's staying within its bands; those that could never win are left out.

    `direction`: "up" bets on larger values (or on more of the last label) alone, "down" on smaller ones.

    `burst`: observations so far apart do not depend on each other, nearer ones may. The factors' roots of that degree are
    what is multiplied. The product of all roots is at most 1 on average: every burst-th observation makes a product whose
    mean is at most 1, and by Hölder's inequality so has the product of their roots.
    """
    items: list[Bet] = []
    columns: list[Shares] = []
    hits: list[Shares] = []
    for kind, place, hit, (low, high) in _indicators(reference, band):
        for odds in ODDS:
            items += [Bet(kind, place, True), Bet(kind, place, False)]
            hits += [hit, hit]
            columns += [_normal(1 + (odds - 1) * hit, high, hit), _normal(1 + (1 / odds - 1) * hit, low, hit)]
    if reference.binning.ordered:
        # Of each bin [bins]: at how many standard deviations from the mean a normal value of its middle rank lies.
        ranks = np.clip(np.cumsum(reference.shares) - np.asarray(reference.shares) / 2, 1e-4, 1 - 1e-4)
        scores, middle = ndtri(ranks), int(np.argmin(np.abs(reference.tails - 0.5))) + 1
        hit = np.where(np.arange(len(scores)) >= middle, 1.0, 0.0)
        for tilt in TILTS:
            items += [Bet("tilt", middle, True), Bet("tilt", middle, False)]
            hits += [hit, hit]
            columns += [
                _monotone(np.exp(tilt * scores), band.tails[1]),
                _monotone(np.exp(-tilt * scores), band.tails[0]),
            ]

    def wanted(bet: Bet) -> bool:
        up, last = bet.up, bet.place == reference.binning.bins - 1
        if direction == "both" or bet.kind != "bin":
            return direction == "both" or up == (direction == "up")
        return (bet.place == 0 or last) and (up == last) == (direction == "up")  # more of an end is a move to that end

    chosen = [at for at, bet in enumerate(items) if columns[at].max() > 1 and wanted(bet)]
    items = [items[at] for at in chosen]
    log_factors = np.log(np.stack([columns[at] for at in chosen], axis=1)) / burst
    hit_table = np.stack([hits[at] for at in chosen], axis=1).astype(np.int64)
    kinds = [bet.kind for bet in items]  # those of a kind share what the kind has; missing kinds leave theirs
    weights = np.array([dict(WEIGHTS)[kind] / kinds.count(kind) for kind in kinds])
    return Bets(tuple(items), log_factors, weights / weights.sum(), hit_table)


def reserve(observations: float, pace: float) -> float:
    """Return what of the 1 has not flowed into the bets after so many observations. It never reaches 0.

    Until `pace` observations it flows about evenly, later as the logarithm's slope: after a month of a request a second
    (2.6 million) and with a pace of 100,000 an observation gets 2e-8, a twentieth of what an even flow over that month
    would give it, and costs 3 of some 18 nats of delay; but the bound holds for ever.
    """
    return 1 / (1 + math.log1p(observations / pace))


def bet_block(bets: Bets, wealth: Wealth, counts: Counts, before: float, pace: float) -> Wealth:
    """Return the wealth in each bet [..., bets] after a block of counts [..., bins]; `before` it came so many
    observations. All blocks of the leading axes have equally many observations.

    What flows in for a block is bet on it already: how many come is known before what they are."""
    with np.errstate(over="ignore"):
        factor = np.exp(np.minimum(counts @ bets.log_factors, _MAX_LOG))
        size = float(np.sum(counts[(0,) * (counts.ndim - 1)]))
        fresh = reserve(before, pace) - reserve(before + size, pace)
        grown: Wealth = np.minimum((wealth + fresh * bets.weights) * factor, MAX_WEALTH)
    return grown


def evidence(wealth: Wealth, observations: float, pace: float) -> NDArray[np.float64]:
    """Return the whole wealth [...] from that of the bets [..., bets]; it starts at 1."""
    total: NDArray[np.float64] = np.sum(wealth, axis=-1) + reserve(observations, pace)
    return total


def _indicators(reference: Reference, band: Bands) -> Iterator[tuple[Kind, int, Shares, tuple[float, float]]]:
    """Yield for each bin and edge: what it is, which of the bins [bins] count, and its band."""
    places = np.arange(reference.binning.bins)
    for place in places:
        yield "bin", int(place), (places == place) * 1.0, (float(band.bins[0][place]), float(band.bins[1][place]))
    for place in places[1:] if reference.binning.ordered else ():
        ends = float(band.tails[0][place - 1]), float(band.tails[1][place - 1])
        yield "edge", int(place), (places >= place) * 1.0, ends


def _normal(factors: Shares, worst: float, hit: Shares) -> Shares:
    """Return the factors [bins], which differ at `hit` alone, over their mean where that has the probability `worst`."""
    inside = float(factors[np.argmax(hit)])
    result: Shares = factors / (1 - worst + worst * inside)
    return result


def _monotone(factors: Shares, tails: Shares) -> Shares:
    """Return monotone factors [bins] over their mean where the shares at or above the edges are `tails` [bins - 1]: the
    upper ends of their bands for rising factors, the lower ends for falling ones, which is the worst."""
    result: Shares = factors / (factors[0] + float(np.diff(factors) @ tails))
    return result
