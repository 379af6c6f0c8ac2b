"""How far the latency table is off at every batch size, where batches are padded to buckets as captured graphs pad them.

Runs on a CPU: a runtime whose graphs are plain calls of the padded batch does the work that a graph would do. A batch and
the full batch of its bucket take turns, so a busy machine slows both, and the median of their ratios over rounds counts.
Seconds are those of the processor, which leave out the time that other programs had it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.results import Target
from pliant.device import threads as torch_threads
from pliant.latency import LatencyTable, bucket
from pliant.models.graphs import BUCKETS
from pliant.progress import Progress, silent
from pliant.tokens.artifact import Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

QUICK, FULL = (-20,), (-20, 0, 8)  # gammas
ROUNDS = {1: 31, 2: 31, 4: 21, 8: 15, 16: 11, 32: 9, 64: 9}
"""How often each batch runs, by its bucket: small ones are quick, and the more disturbed."""
HEADINGS = ("gamma", "batches", "error of the table", "of a line between buckets")


@dataclass(frozen=True, slots=True)
class Row:
    """One batch size: its seconds, and these over what the table says with its buckets (`steps`) and without (`line`)."""

    gamma: int
    batch: int
    seconds: float
    steps: float
    line: float


@dataclass(frozen=True, slots=True)
class Errors:
    """Every batch size from 1 to the largest bucket, at some gammas."""

    rows: tuple[Row, ...]

    def worst(self, field: str = "steps") -> float:
        """Return the largest share by which a prediction is off."""
        return max(abs(float(getattr(row, field)) - 1) for row in self.rows)

    def targets(self) -> list[Target]:
        name = f"error of the latency table with buckets, worst of all batches from 1 to {BUCKETS[-1]}"
        return [Target(name, self.worst(), "<=", 0.10)]

    def table(self) -> list[tuple[str, ...]]:
        """Return the worst of each bucket's errors, as cells under HEADINGS."""
        return [
            (f"{gamma:+d}", f"{low} to {high}", f"{steps:.1%}", f"{line:.1%}")
            for gamma, low, high, steps, line in self._worst()
        ]

    def plain(self) -> list[dict[str, Any]]:
        """Return the same as plain values."""
        names = ("gamma", "from", "to", "steps", "line")
        return [dict(zip(names, row, strict=True)) for row in self._worst()]

    def _worst(self) -> list[tuple[int, int, int, float, float]]:
        """Return for each gamma and bucket the batches that it holds, and the worst errors of both predictions."""
        worst = []
        for gamma in dict.fromkeys(row.gamma for row in self.rows):
            for size in BUCKETS:
                held = [row for row in self.rows if row.gamma == gamma and bucket(row.batch, BUCKETS) == size]
                errors = Errors(tuple(held))
                worst.append((gamma, held[0].batch, size, errors.worst(), errors.worst("line")))
        return worst


def padded(call: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """Return the call itself: a capture that records nothing, for a device without graphs."""
    return call


def measure(
    backbone: Backbone,
    tasks: Sequence[Task],
    threads: int = 1,
    gammas: Sequence[int] = QUICK,
    rounds: Mapping[int, int] = ROUNDS,
    progress: Progress = silent,
) -> Errors:
    """Measure on the CPU; quick takes about 75 seconds at the flow's sizes, full some minutes."""
    with torch_threads(threads):
        runtime = TokensRuntime(backbone, tasks[0].backbone, tasks, execution=Execution(capture=padded))
        size = backbone.image_size
        pixel_BHWC = np.random.default_rng(0).integers(0, 256, (BUCKETS[-1], size, size, 3), dtype=np.uint8)
        payloads = [Payload(tasks[i % len(tasks)].name, image) for i, image in enumerate(pixel_BHWC)]
        rows: list[Row] = []
        for number, gamma in enumerate(gammas):
            rows += _rows(runtime, gamma, payloads, rounds)
            progress(number + 1, len(gammas))
    return Errors(tuple(rows))


def processor_seconds_of(call: Callable[[], object]) -> float:
    """Return the seconds that this process had the processor during one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def _rows(runtime: TokensRuntime, gamma: int, payloads: Sequence[Payload], rounds: Mapping[int, int]) -> list[Row]:
    pairs = {size: _pairs(runtime, gamma, payloads, size, rounds) for size in range(1, BUCKETS[-1] + 1)}
    full = {b: float(np.median([p[:, 1] for n, p in pairs.items() if bucket(n, BUCKETS) == b])) for b in BUCKETS}
    steps = LatencyTable((gamma,), BUCKETS, (tuple(full.values()),), runtime.buckets)
    line = replace(steps, buckets=())
    rows = []
    for size, pairs_R2 in pairs.items():
        ratio = float(np.median(pairs_R2[:, 0] / pairs_R2[:, 1]))
        measured = ratio * full[bucket(size, BUCKETS)]
        rows.append(Row(gamma, size, measured, *(measured / table.at(gamma, size) for table in (steps, line))))
    return rows


def _pairs(
    runtime: TokensRuntime, gamma: int, payloads: Sequence[Payload], size: int, rounds: Mapping[int, int]
) -> NDArray[np.float64]:
    """Return [round, 2] seconds of the batch and of its bucket's full batch, which take turns in being first."""
    full = bucket(size, BUCKETS)
    calls = [partial(runtime.run, gamma, payloads[:count]) for count in (size, full)]
    pairs_R2 = np.empty((rounds[full], 2))
    calls[1]()  # the first run of a shape is slow
    for turn in range(rounds[full]):
        for which in (0, 1) if turn % 2 else (1, 0):
            pairs_R2[turn, which] = processor_seconds_of(calls[which])
    return pairs_R2
