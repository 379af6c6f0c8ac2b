"""Arlo's latency facts as a latency model, for simulations on the paper's ground. Nothing here was measured by us.

The paper tells of BERT-base: 4.86 ms at length 512, 4.28x the latency at 20 and 4.22x that at 64; of BERT-large: 5.25x
between 512 and 64; that latency rises in steps of 64 tokens; and that dynamic shapes cost 1.22x to 3.56x. Assumed:
- between 64 and 512 the steps lie on a straight line (two points are all that is told);
- BERT-large takes FLOPS times BERT-base's latency at 512: at the same efficiency of the device;
- dynamic shapes follow the line without steps, times the least factor told, 1.22: the kindest to that baseline. The paper's
  margin over it (23.7%) agrees with a factor near this end and not with the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Bins, Shape
from pliant.errors import InputError
from pliant.latency import LatencyTable

STEP = 64  # tokens from one step of the latency to the next
LONGEST = 512
LOAD_SECONDS = 1.0  # of a swap to another runtime
EDGES = (*range(STEP, LONGEST, STEP), LONGEST)  # the paper's bins
DYNAMIC = (1.22, 3.56)  # least and largest factor of dynamic shapes


_BASE, _LARGE = (
    layers * LONGEST * (12.0 * width**2 + 2.0 * LONGEST * width) for layers, width in ((12, 768), (24, 1024))
)
"""Multiply-adds of a pass: 12 width^2 weights a layer on every token, and attention's scores and sums."""
FLOPS = _LARGE / _BASE  # of BERT-large over BERT-base: 3.47


@dataclass(frozen=True, slots=True)
class Published:
    """Latency in seconds by length in tokens. `longest`: at 512; `ratio`: of that over 64, `shortest` over 20."""

    name: str
    slo: float
    longest: float
    ratio: float
    shortest: float
    factor: float = DYNAMIC[0]  # of dynamic shapes

    def seconds(self, edge: float) -> float:
        """Return those of a static runtime for up to `edge` tokens: below 64 its own, else the next multiple of 64's."""
        return self._line(edge if edge < STEP else STEP * ceil(edge / STEP))

    def dynamic_seconds(self, length: float) -> float:
        """Return those of the dynamic runtime on `length` tokens."""
        return self.factor * self._line(length)

    def _line(self, length: float) -> float:
        if not 1 <= length <= LONGEST:
            raise InputError("length", length, f"1 to {LONGEST} tokens")
        ends = (self.longest / self.shortest, self.longest / self.ratio, self.longest)
        return float(np.interp(length, (20, STEP, LONGEST), ends))


BERT_BASE = Published("bert-base", 0.150, 0.00486, 4.22, 4.28)
BERT_LARGE = Published("bert-large", 0.450, 0.00486 * FLOPS, 5.25, 5.25 * 4.28 / 4.22)
"""At 20 BERT-large is as much faster than at 64 as BERT-base is."""


def published_bins(facts: Published, recorded_N: NDArray[np.integer] | None = None) -> Bins:
    """Return the paper's facts as an artifact: eight static runtimes of batch 1, the dynamic one, the recorded lengths.

    Without recorded ones, lengths are those of `drawn_lengths`.
    """
    lengths = (20, *EDGES)
    table = LatencyTable(lengths, (1,), tuple((facts.dynamic_seconds(length),) for length in lengths))
    shapes = tuple(Shape(edge, 1) for edge in EDGES)
    seconds = tuple(facts.seconds(edge) for edge in EDGES)
    recorded_N = drawn_lengths(10_000, np.random.default_rng(0)) if recorded_N is None else recorded_N
    observed = np.bincount(recorded_N, minlength=EDGES[-1] + 1)
    device, shapes = "RTX 3090 as published", (*shapes, Shape(EDGES[-1], 1, True))
    runtimes = device, "graphs", facts.slo, shapes, seconds, table
    return Bins(facts.name, "", *runtimes, observed, LOAD_SECONDS, "single", {}, {})


def drawn_lengths(count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return lengths in tokens, log-normal: median 70 and p98 241, as of the recorded tweets stretched to 512."""
    lengths_N: NDArray[np.int64] = np.clip(np.rint(rng.lognormal(np.log(70), 0.602, count)), 1, LONGEST).astype(
        np.int64
    )
    return lengths_N
