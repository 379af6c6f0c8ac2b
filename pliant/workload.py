"""Synthetic loads: when requests arrive, and of which kind. Every random draw uses the generator that is passed in.

Knows no scheduler and no device. Rates are in requests a second, times in seconds from the start of the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.protocol import Request

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A kind of request: its task, seconds from arrival to deadline, and utility."""

    task: str
    deadline: float
    utility: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of constant rate."""

    rate: float
    seconds: float


def poisson(rate: float, seconds: float, rng: np.random.Generator) -> Times:
    """Return the arrival times of a Poisson process over [0, seconds). Raises `InputError` below 0."""
    if not rate >= 0 or not seconds >= 0:
        raise InputError("rate and seconds", (rate, seconds), "at least 0")
    return np.sort(rng.uniform(0, seconds, rng.poisson(rate * seconds)))


def piecewise(segments: Sequence[Segment], rng: np.random.Generator) -> Times:
    """Return Poisson arrivals whose rate changes from segment to segment."""
    starts = np.cumsum([0.0, *(s.seconds for s in segments)])
    arrivals = [start + poisson(s.rate, s.seconds, rng) for start, s in zip(starts, segments, strict=False)]
    return np.concatenate(arrivals) if arrivals else np.empty(0)


def markov_modulated(
    rates: Sequence[float], dwell: float, seconds: float, rng: np.random.Generator
) -> tuple[list[Segment], Times]:
    """Return the segments and the arrivals of a Markov-modulated Poisson process.

    It stays in a state for `dwell` seconds on average, then jumps to any other. Raises `InputError` without a positive
    `dwell` and a rate.
    """
    if not dwell > 0 or not len(rates):
        raise InputError("dwell and rates", (dwell, rates), "above 0 seconds and at least one rate")
    segments: list[Segment] = []
    state, left = int(rng.integers(len(rates))), seconds
    while left > 0:
        stay = min(float(rng.exponential(dwell)), left)
        segments.append(Segment(rates[state], stay))
        state = (state + int(rng.integers(1, len(rates)))) % len(rates) if len(rates) > 1 else state
        left -= stay
    return segments, piecewise(segments, rng)


def requests(times: Times, kinds: Sequence[RequestKind], rng: np.random.Generator) -> list[Request]:
    """Return requests at these times, numbered from 0, of kinds that are drawn uniformly."""
    drawn = rng.integers(len(kinds), size=len(times))
    return [
        Request(i, float(at), float(at) + kinds[k].deadline, kinds[k].task, kinds[k].utility)
        for i, (at, k) in enumerate(zip(times, drawn, strict=True))
    ]


def alternating(low: Sequence[float], high: Sequence[float], seconds: float) -> list[Segment]:
    """Return segments of the rates low[0], high[0], low[1], ..., each `seconds` long.

    Raises `InputError` if one list is longer.
    """
    if len(low) != len(high):
        raise InputError("low and high", (len(low), len(high)), "of the same length")
    return [Segment(rate, seconds) for pair in zip(low, high, strict=True) for rate in pair]


def stretches(
    quiet: Sequence[float], loud: Sequence[float], capacity: float, seconds: float, rng: np.random.Generator
) -> tuple[list[Segment], Times]:
    """Return quiet and loud stretches in turn, and their arrivals. Rates are shares of `capacity`, each list in an order
    that is drawn."""
    loud_drawn = [share * capacity for share in rng.permutation(loud)]
    quiet_drawn = [share * capacity for share in rng.permutation(quiet)]
    segments = alternating(quiet_drawn, loud_drawn, seconds)
    return segments, piecewise(segments, rng)


def segment_of(times: Times, segments: Sequence[Segment]) -> NDArray[np.intp]:
    """Return the index of the segment that each time falls into."""
    ends = np.cumsum([s.seconds for s in segments])
    assert all(a < b for a, b in pairwise(ends)), "segments must last"
    index: NDArray[np.intp] = np.minimum(np.searchsorted(ends, times, side="right"), len(segments) - 1)
    return index


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """A reference load: a quiet and a loud (overloaded) stretch alternate. Rates are shares of the capacity."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch

    def drawn(self, capacity: float, rng: np.random.Generator) -> tuple[list[Segment], Times]:
        """Return the stretches, quiet and loud rates each in an order that is drawn, and the times of arrivals."""
        return stretches(self.quiet, self.loud, capacity, self.seconds, rng)


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, and the stretches of their rate, a quiet and a loud one in turn."""

    requests: tuple[Request, ...]
    segments: tuple[Segment, ...] = ()
    rows: tuple[int, ...] = ()  # the text of each request, in its task, where texts are drawn

    @property
    def loud(self) -> frozenset[int]:
        """Ids of the requests that arrive in a loud stretch."""
        where = segment_of(np.array([request.arrival for request in self.requests]), self.segments)
        return frozenset(r.id for r, segment in zip(self.requests, where.tolist(), strict=True) if segment % 2)
