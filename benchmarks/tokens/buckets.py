"""How far the latency table is off at every batch size, where batches are padded to buckets as captured graphs pad them.

Runs on a CPU: a runtime whose graphs are plain calls of the padded batch does the work that a graph would do. A batch and
the full batch of its bucket take turns, so a busy machine slows both, and the median of their ratios over rounds counts.
Seconds are those of the processor, which leave out the time that other programs had it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
ROUNDS = {1: 31, 2: 31, 4: 21, 8: 15, 16: 9, 32: 7, 64: 5}
"""How often each batch runs, by its bucket: small ones are quick, and the more disturbed."""
HEADINGS = ("gamma", "batch", "ms", "over the table", "over a line between buckets")


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
        """Return the cells of the worst batch under every bucket, under HEADINGS."""
        worst: dict[tuple[int, int], Row] = {}
        for row in self.rows:
            key = row.gamma, bucket(row.batch, BUCKETS)
            if key not in worst or abs(row.line - 1) > abs(worst[key].line - 1):
                worst[key] = row
        return [
            (f"{r.gamma:+d}", str(r.batch), f"{1000 * r.seconds:.2f}", f"{r.steps:.2f}", f"{r.line:.2f}")
            for r in worst.values()
        ]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


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
    """Measure on the CPU; quick takes about 30 seconds at the flow's sizes, full some minutes."""
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
