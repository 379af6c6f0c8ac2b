"""Twitter-stable and Twitter-bursty: requests of a static-shape service, from the real traces in the shared data folder.

Arrivals: the recorded counts of a window of seconds are the rate of each second, scaled to the mean asked for. Inside a
second they are Poisson (stable), or Poisson modulated by a two-state Markov chain (bursty). The windows are ranked by the
index of dispersion of their counts, variance / mean: stable draws one of the calmest twentieth, bursty one of the most
variable twentieth of those that stay below PEAK times their mean for any ten seconds (more would overload any pool
that the mean fits, and tell nothing about dispatch). No window holds a second without a request: those are gaps.

Lengths: tokens of single tweets, estimated from their characters (`PER_TOKEN`), times one factor that makes the longest 512.
The estimate's median is 27 and its p98 93 tokens, a ratio of 3.46; the paper tells 21 and 72, 3.43. Stretched: 70 and 241.
Drifting lengths: the mix of languages shifts as if a day moved round the world, see `_walk`.
Knows no scheduler. Every draw comes from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d
from scipy.optimize import brentq

from pliant.benchmarks import places
from pliant.benchmarks.places import SHARED, existing
from pliant.errors import InputError

FOLDER = SHARED / "traces"
COUNTS = FOLDER / "twitter_requests_per_second.parquet"
TWEETS = FOLDER / "twitter_stream_lengths.parquet"

LONGEST = 512  # tokens
PER_TOKEN = 4.0  # characters a token where words are spaced
PER_TOKEN_UNSPACED = 1.5  # in Japanese, Chinese and Thai
UNSPACED = ("ja", "zh", "th")

DAY = 84_600  # recorded seconds of one
STRIDE = 10  # seconds between the windows tried
SHARE = 0.05  # of the windows, from which one is drawn
PEAK = 1.8  # ten busiest seconds of a bursty window / its mean

SLOW, FAST = 0.5, 2.0  # the two states' rates, times the second's own
SLOW_SECONDS, FAST_SECONDS = 0.2, 0.1  # mean stay in each: the mean rate is 1

DRIFT = 0.35  # how far the mean of log-length moves to either side
KNOT = 10.0  # seconds between two steps of the walk
STEP = 0.15  # deviation of a step; the walk lives in [-1, 1]
QUANTILES = 41  # of the walk, for each of which the distribution of lengths is computed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """Requests in order. `times` [n]: seconds from the start; `lengths` [n]: tokens, 1 to 512."""

    times: Floats
    lengths: NDArray[np.int32]
    name: str


def missing() -> str:
    """Return why the traces cannot be made here; empty if they can."""
    return places.missing(COUNTS, TWEETS)


def stable(rate: float, seconds: float, seed: int, drift: bool = False) -> Trace:
    """Return `rate` requests/s on average, from a calm window of the recorded counts, Poisson inside a second."""
    rng = np.random.default_rng([seed, 1])
    counts = _window(seconds, rng, calm=True)
    return _trace(np.arange(len(counts) + 1.0), counts, rate, seconds, rng, "stable", drift)


def bursty(rate: float, seconds: float, seed: int, drift: bool = False) -> Trace:
    """Return `rate` requests/s on average, from a variable window, Markov-modulated Poisson inside a second."""
    rng = np.random.default_rng([seed, 2])
    counts = _window(seconds, rng, calm=False)
    edges, factor = _modulation(seconds, rng)
    every = np.union1d(edges, np.arange(len(counts) + 1.0))
    start = every[:-1]
    inside = factor[np.clip(np.searchsorted(edges, start, side="right") - 1, 0, len(factor) - 1)]
    return _trace(every, counts[start.astype(np.int64)] * inside, rate, seconds, rng, "bursty", drift)


def _trace(
    edges: Floats, rates: Floats, rate: float, seconds: float, rng: np.random.Generator, name: str, drift: bool
) -> Trace:
    times = _arrivals(edges, rates, rate, seconds, rng)
    return Trace(times, _lengths(times, seconds, rng, drift), f"twitter-{name}" + ("-drifting" if drift else ""))


def _arrivals(edges: Floats, rates: Floats, rate: float, seconds: float, rng: np.random.Generator) -> Floats:
    """Draw a Poisson process of piecewise constant rate, scaled so that `rate` is its mean; sorted without sorting."""
    edges = np.minimum(edges, seconds)
    mass = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges))])
    gaps = rng.exponential(size=rng.poisson(rate * seconds) + 1)
    at = np.cumsum(gaps[:-1])
    return np.interp(at * (mass[-1] / (at[-1] + gaps[-1])) if len(at) else at, mass, edges)


def _modulation(seconds: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw the edges [k + 1] of the chain's stays over [0, seconds] and the rate's factor [k] in each."""
    pairs = int(2 * seconds / (SLOW_SECONDS + FAST_SECONDS)) + 100
    stays = rng.exponential((SLOW_SECONDS, FAST_SECONDS), (pairs, 2)).ravel()
    edges = np.concatenate([[0.0], np.cumsum(stays)])
    count = int(np.searchsorted(edges, seconds))
    return np.append(edges[:count], seconds), np.tile((SLOW, FAST), pairs)[:count]


def _window(seconds: float, rng: np.random.Generator, calm: bool) -> Floats:
    """Return the recorded counts of the window drawn, one a second, of all days in a row."""
    import pandas

    width = int(np.ceil(seconds))
    counts: Floats = pandas.read_parquet(existing(COUNTS))["requests"].to_numpy().astype(np.float64)
    if not 0 < width <= DAY:
        raise InputError("seconds", seconds, f"above 0, at most a recorded day of {DAY:,} s")
    starts = _candidates(counts, width, calm)
    start = int(starts[rng.integers(len(starts))])
    return counts[start : start + width]


def _candidates(counts: Floats, width: int, calm: bool) -> NDArray[np.int64]:
    """Return the starts of the windows to draw from: the calmest or the most variable twentieth of those allowed."""
    starts = np.arange(0, len(counts) - width + 1, STRIDE)
    total, squares, gaps = (_sums(x, starts, width) for x in (counts, counts**2, counts == 0))
    mean = total / width
    # The busiest ten seconds of each window: of the tens inside one, the filter's is that at index + reach // 2.
    span = min(STRIDE, width)
    tens, reach = _sums(counts, np.arange(len(counts) - span + 1), span) / span, width - span + 1
    peaks = maximum_filter1d(tens, reach)[starts + reach // 2]
    allowed = (gaps == 0) & (calm | (peaks <= PEAK * mean))
    if not allowed.any():
        raise InputError("seconds", width, "short enough that some recorded window has no gap and no overload")
    dispersion = (squares / width - mean**2)[allowed] / mean[allowed]
    order = np.argsort(dispersion if calm else -dispersion)
    kept: NDArray[np.int64] = starts[allowed][order[: max(1, int(SHARE * len(order)))]]
    return kept


def _sums(values: NDArray[np.generic], starts: NDArray[np.int64], width: int) -> Floats:
    running = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    sums: Floats = running[starts + width] - running[starts]
    return sums


def _lengths(times: Floats, seconds: float, rng: np.random.Generator, drift: bool) -> NDArray[np.int32]:
    """Draw the tokens of each request; with drift each stretch of KNOT seconds has a distribution of its own."""
    cumulative = _distributions()
    drawn = rng.random(len(times))
    if not drift:
        return _drawn(cumulative[QUANTILES // 2], drawn)
    ends = np.searchsorted(times, KNOT * np.arange(1, int(np.ceil(seconds / KNOT)) + 1))
    levels = np.rint((_walk(len(ends), rng) + 1) / 2 * (QUANTILES - 1)).astype(np.int64)
    stretches = np.split(drawn, ends[:-1])
    return np.concatenate([_drawn(cumulative[level], part) for level, part in zip(levels, stretches, strict=True)])


def _drawn(cumulative: Floats, uniform: Floats) -> NDArray[np.int32]:
    return np.minimum(np.searchsorted(cumulative, uniform, side="right"), LONGEST).astype(np.int32)


def _walk(count: int, rng: np.random.Generator) -> Floats:
    """Draw a Gaussian random walk reflected at -1 and 1, from a uniform start: where the day is."""
    free = rng.uniform(-1, 1) + np.concatenate([[0.0], np.cumsum(rng.normal(0, STEP, count - 1))])
    where: Floats = np.abs((free - 1) % 4 - 2) - 1
    return where


def _distributions() -> Floats:
    """Return [QUANTILES, 513], distributions of lengths: at level z languages weigh exp(tilt z mean log-length) more.

    The tilt to either side is what moves the mean of log-length by DRIFT; the middle is the recorded mix.
    """
    lengths, language = stretched()
    logs = np.log(lengths)
    mean = (np.bincount(language, weights=logs) / np.bincount(language))[language]

    def weights(tilt: float) -> Floats:
        raw: Floats = np.exp(tilt * (mean - mean.mean()))
        raw /= raw.sum()
        return raw

    def moved(tilt: float, side: float) -> float:
        return float(weights(tilt) @ logs - logs.mean() - side * DRIFT)

    low, high = (float(brentq(moved, *sorted((0.0, 20.0 * side)), args=(side,))) for side in (-1.0, 1.0))
    cumulative = np.empty((QUANTILES, LONGEST + 1))
    for i, z in enumerate(np.linspace(-1, 1, QUANTILES)):
        weight = weights(float(np.interp(DRIFT * z, (-DRIFT, 0, DRIFT), (low, 0, high))))
        cumulative[i] = np.cumsum(np.bincount(lengths, weights=weight, minlength=LONGEST + 1))
    return cumulative


def stretched() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of every recorded tweet, the longest 512, and the index of its language."""
    import pandas

    table = pandas.read_parquet(existing(TWEETS))
    unspaced = table["language"].isin(UNSPACED).to_numpy()
    tokens = table["characters"].to_numpy() / np.where(unspaced, PER_TOKEN_UNSPACED, PER_TOKEN)
    language = np.unique(table["language"].to_numpy().astype(str), return_inverse=True)[1]
    return np.maximum(np.rint(tokens * LONGEST / tokens.max()), 1).astype(np.int64), language
