"""Which of the requests that wait for one model make the next batch: the densest in value, or that with the most urgent.

A batch takes as long as its longest text and its size say (`Clock`), and all its requests must be answered in time. For a
longest length and a size the best batch is exact: of those short enough and not too urgent, the most valuable. Lengths are
tried at the measured steps only, of every step the longest text there is, and at that of the most urgent. All that wait must
still be in time by themselves (the scheduler has taken out the others). Pure functions; knows no levels, gates or workers.

Shape suffixes: W waiting requests, most valuable first; B batch size from 1 on; S steps of length.
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
    """One request as far as batching goes. `value`: what its answer is expected to be worth."""

    @property
    def deadline(self) -> float: ...

    @property
    def length(self) -> int: ...

    @property
    def value(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one text: as a batch of its own, and its part of a batch of the best size."""

    alone: float
    least: float


@dataclass(frozen=True, slots=True)
class Batch:
    chosen: tuple[int, ...]  # places in the sequence given
    seconds: float  # on the device, by the profile
    density: float  # value per second until the answer


class Clock:
    """Seconds of a batch by the profile, for every measured length and every size: made once a model."""

    def __init__(self, latency: LatencyTable) -> None:
        self.lengths = np.asarray(latency.settings)
        self.most = latency.batches[-1]
        self._seconds: Floats = latency.dense(self.most)[:, 1:]
        self._costs: dict[int, Cost] = {}

    def batch_seconds(self, longest: int) -> Floats:
        """Of batches of 1 to `most`, padded to `longest` tokens: [B]."""
        seconds_B: Floats = self.table(np.array([longest]))[0]
        return seconds_B

    def table(self, longest_S: Lengths) -> Floats:
        """The same for several lengths, [S, B]: linear between measured ones, in proportion beyond the last."""
        last = len(self.lengths) - 1
        high_S = np.minimum(np.searchsorted(self.lengths, longest_S), last)
        low_S = np.maximum(high_S - 1, 0)
        width_S = np.maximum(self.lengths[high_S] - self.lengths[low_S], 1)
        share_S = np.where(high_S == low_S, 1.0, np.minimum((longest_S - self.lengths[low_S]) / width_S, 1.0))[:, None]
        between_SB = (1 - share_S) * self._seconds[low_S] + share_S * self._seconds[high_S]
        beyond: Floats = between_SB * np.maximum(longest_S / float(self.lengths[-1]), 1.0)[:, None]
        return beyond

    def cost(self, length: int) -> Cost:
        """Computed once a length."""
        if length not in self._costs:
            seconds_B = self.batch_seconds(length)
            least = float((seconds_B / np.arange(1, len(seconds_B) + 1)).min())
            self._costs[length] = Cost(float(seconds_B[0]), least)
        return self._costs[length]

    def alone(self, length: int) -> float:
        """Seconds of one text."""
        return self.cost(length).alone

    def least(self, length: int) -> float:
        """Seconds of device time per text, at its best size."""
        return self.cost(length).least


def densest(
    waiting: Sequence[Waiting], clock: Clock, now: float, slowdown: float = 1.0, beyond: float = 0.0
) -> Batch | None:
    """The feasible batch of the most value per second; None where none is."""
    if len(waiting) == 1:
        return _alone(waiting[0], clock, now, slowdown, beyond)
    return _best(waiting, clock, now, slowdown, beyond, first=False)


def urgent(
    waiting: Sequence[Waiting], clock: Clock, now: float, slowdown: float = 1.0, beyond: float = 0.0
) -> Batch | None:
    """The densest feasible batch that holds the first of `waiting`; None where that can no longer be served."""
    if len(waiting) == 1:
        return _alone(waiting[0], clock, now, slowdown, beyond)
    return _best(waiting, clock, now, slowdown, beyond, first=True)


def _alone(one: Waiting, clock: Clock, now: float, slowdown: float, beyond: float) -> Batch | None:
    """Most queues hold one or none."""
    seconds = clock.alone(one.length)
    took = seconds * slowdown + beyond
    return Batch((0,), seconds, one.value / took) if one.deadline >= now + took else None


def _best(
    waiting: Sequence[Waiting], clock: Clock, now: float, slowdown: float, beyond: float, first: bool
) -> Batch | None:
    if not waiting:
        return None
    length_W, deadline_W, value_W, order_W = _columns(waiting, first)
    longest_S = _steps(length_W, clock)
    if first:  # a longer one of its own step might be too long for it
        longest_S = np.append(longest_S[longest_S > length_W[0]], length_W[0])
    seconds_SB = clock.table(longest_S)[:, : len(waiting)]
    took_SB = seconds_SB * slowdown + beyond
    size_B = np.arange(1, took_SB.shape[1] + 1, dtype=np.int16)
    fits_SBW = (deadline_W >= (now + took_SB)[:, :, None]) & (length_W <= longest_S[:, None, None])
    rank_SBW = fits_SBW.cumsum(axis=2, dtype=np.int16)
    taken_SBW = fits_SBW & (rank_SBW <= size_B[:, None])
    allowed_SB = (rank_SBW[:, :, -1] >= size_B) & (fits_SBW[:, :, 0] | (not first))
    density_SB = np.where(allowed_SB, (taken_SBW @ value_W) / took_SB, -np.inf)
    s, b = divmod(int(density_SB.argmax()), density_SB.shape[1])
    if not allowed_SB[s, b]:
        return None
    # Its longest text may be shorter than the one that was tried, and was left out.
    taken_W = taken_SBW[s, b]
    seconds = float(clock.batch_seconds(int(length_W[taken_W].max()))[b])
    density = float(value_W[taken_W].sum()) / (seconds * slowdown + beyond)
    return Batch(tuple(sorted(order_W[taken_W].tolist())), seconds, density)


def _columns(waiting: Sequence[Waiting], first: bool) -> tuple[Lengths, Floats, Floats, Lengths]:
    """Lengths, deadlines, values and places, most valuable first; `first`: behind the first of all."""
    value_W = np.array([one.value for one in waiting])
    order_W = np.argsort(-value_W, kind="stable")
    if first:
        order_W = np.concatenate([[0], order_W[order_W != 0]])
    length_W = np.array([one.length for one in waiting])[order_W]
    deadline_W = np.array([one.deadline for one in waiting])[order_W]
    return length_W, deadline_W, value_W[order_W], order_W


def _steps(length_W: Lengths, clock: Clock) -> Lengths:
    """The longest text of every measured step."""
    step_W = np.searchsorted(clock.lengths, length_W)
    return np.array([length_W[step_W == step].max() for step in np.unique(step_W)])
