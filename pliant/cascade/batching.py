"""Chooses the next batch from the requests that wait for one model: the densest in value, or the one with the most
urgent.

The seconds of a batch follow from its longest text and its size (`BatchTimes`), and all its requests must be answered
in time. For a given longest length and size the best batch is exact: the most valuable of the requests that are short
enough and not too urgent. Lengths are tried between every two measured ones, at the longest text that waits there, and
at the length of the most urgent request. All that wait must still be in time by themselves; the scheduler has taken out
the others. Pure functions; knows no levels, gates or workers.

Shape suffixes: W waiting requests, most valuable first; B batch sizes from 1 on; S lengths to try.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.latency import LatencyTable

Floats = NDArray[np.float64]
Lengths = NDArray[np.integer]


class Waiting(Protocol):
    """A request as batching sees it: deadline in seconds, length in tokens, and the expected value of its answer."""

    @property
    def deadline(self) -> float: ...

    @property
    def length(self) -> int: ...

    @property
    def value(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one text: `alone` in a batch, and its `least` share of a batch, at the best size."""

    alone: float
    least: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to launch."""

    chosen: tuple[int, ...]  # indices into the waiting requests
    seconds: float  # on the device, by the profile
    density: float  # value a second, up to the answer


class BatchTimes:
    """The seconds of batches of one model, by its profile."""

    def __init__(self, latency: LatencyTable) -> None:
        self.lengths = np.asarray(latency.settings)
        self.most = latency.batches[-1]
        self._seconds: Floats = latency.dense(self.most)[:, 1:]
        self._costs: dict[int, Cost] = {}

    def batch_seconds(self, longest: int) -> Floats:
        """Return the seconds [B] of batches of 1 to `most` texts, padded to `longest` tokens."""
        seconds_B: Floats = self.table(np.array([longest]))[0]
        return seconds_B

    def table(self, longest_S: Lengths) -> Floats:
        """Return the same for several lengths [S, B]: linear between measured ones, in proportion beyond the last."""
        last = len(self.lengths) - 1
        high_S = np.minimum(np.searchsorted(self.lengths, longest_S), last)
        low_S = np.maximum(high_S - 1, 0)
        width_S = np.maximum(self.lengths[high_S] - self.lengths[low_S], 1)
        share_S = np.where(high_S == low_S, 1.0, np.minimum((longest_S - self.lengths[low_S]) / width_S, 1.0))[:, None]
        between_SB = (1 - share_S) * self._seconds[low_S] + share_S * self._seconds[high_S]
        beyond: Floats = between_SB * np.maximum(longest_S / float(self.lengths[-1]), 1.0)[:, None]
        return beyond

    def cost(self, length: int) -> Cost:
        """Return the cost of one text of this length, which is computed once a length."""
        if length not in self._costs:
            seconds_B = self.batch_seconds(length)
            least = float((seconds_B / np.arange(1, len(seconds_B) + 1)).min())
            self._costs[length] = Cost(float(seconds_B[0]), least)
        return self._costs[length]

    def alone(self, length: int) -> float:
        """Return the seconds of one text in a batch of its own."""
        return self.cost(length).alone

    def least(self, length: int) -> float:
        """Return the device's seconds for one text in a batch of the best size."""
        return self.cost(length).least


def densest(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float = 1.0,
    beyond: float = 0.0,
    excess: float = 0.0,
) -> Batch | None:
    """Return the batch of the most value a second; None if no batch is in time.

    `slowdown` and `beyond` (seconds) correct the profile, as learnt by pliant/devices.py; `excess`: the mean seconds by
    which pauses prolong a launch, which are part of its price alone.
    """
    if len(waiting) == 1:
        return _alone(waiting[0], times, now, slowdown, beyond, excess)
    return _best(waiting, times, now, slowdown, beyond, excess, first=False)


def urgent(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float = 1.0,
    beyond: float = 0.0,
    excess: float = 0.0,
) -> Batch | None:
    """Return the densest batch with the first of `waiting`; None if that one can no longer be in time."""
    if len(waiting) == 1:
        return _alone(waiting[0], times, now, slowdown, beyond, excess)
    return _best(waiting, times, now, slowdown, beyond, excess, first=True)


def _alone(item: Waiting, times: BatchTimes, now: float, slowdown: float, beyond: float, excess: float) -> Batch | None:
    """Return the batch of one request, as most queues hold; None if it is too late."""
    seconds = times.alone(item.length)
    took = seconds * slowdown + beyond
    return Batch((0,), seconds, item.value / (took + excess)) if item.deadline >= now + took else None


def _best(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float,
    beyond: float,
    excess: float,
    first: bool,
) -> Batch | None:
    if not waiting:
        return None
    length_W, deadline_W, value_W, order_W = _columns(waiting, first)
    longest_S = _steps(length_W, times)
    if first:  # a longer text between the same measured lengths might make it late
        longest_S = np.append(longest_S[longest_S > length_W[0]], length_W[0])
    seconds_SB = times.table(longest_S)[:, : len(waiting)]
    took_SB = seconds_SB * slowdown + beyond
    size_B = np.arange(1, took_SB.shape[1] + 1, dtype=np.int16)
    fits_SBW = (deadline_W >= (now + took_SB)[:, :, None]) & (length_W <= longest_S[:, None, None])
    rank_SBW = fits_SBW.cumsum(axis=2, dtype=np.int16)
    taken_SBW = fits_SBW & (rank_SBW <= size_B[:, None])
    allowed_SB = (rank_SBW[:, :, -1] >= size_B) & (fits_SBW[:, :, 0] | (not first))
    density_SB = np.where(allowed_SB, (taken_SBW @ value_W) / (took_SB + excess), -np.inf)
    s, b = divmod(int(density_SB.argmax()), density_SB.shape[1])
    if not allowed_SB[s, b]:
        return None
    # Its longest text may be shorter than the length that was tried.
    taken_W = taken_SBW[s, b]
    seconds = float(times.batch_seconds(int(length_W[taken_W].max()))[b])
    density = float(value_W[taken_W].sum()) / (seconds * slowdown + beyond + excess)
    return Batch(tuple(sorted(order_W[taken_W].tolist())), seconds, density)


def _columns(waiting: Sequence[Waiting], first: bool) -> tuple[Lengths, Floats, Floats, Lengths]:
    """Return lengths, deadlines, values and indices [W], most valuable first. `first` keeps the first one in front."""
    value_W = np.array([item.value for item in waiting])
    order_W = np.argsort(-value_W, kind="stable")
    if first:
        order_W = np.concatenate([[0], order_W[order_W != 0]])
    length_W = np.array([item.length for item in waiting])[order_W]
    deadline_W = np.array([item.deadline for item in waiting])[order_W]
    return length_W, deadline_W, value_W[order_W], order_W


def _steps(length_W: Lengths, times: BatchTimes) -> Lengths:
    """Return the longest waiting text between every two measured lengths, where there is one."""
    step_W = np.searchsorted(times.lengths, length_W)
    return np.array([length_W[step_W == step].max() for step in np.unique(step_W)])
