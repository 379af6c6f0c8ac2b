"""The devices and loads on which policies are compared: the paper's device and workload, and a GPU with short deadlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens import published
from pliant.tokens.artifact import GAMMAS
from pliant.tokens.otas import rate_rule
from pliant.tokens.scheduler import Knowledge
from pliant.workload import RequestKind, Segment, piecewise, requests

CPU, GPU = "figure 4b", "H200"

H200: Mapping[int, tuple[float, ...]] = {
    1: (515.9, 500.6, 486.1, 479.9, 1084.0, 1074.0, 1072.0, 1074.0),
    8: (3336.0, 3155.0, 2978.0, 2840.0, 5214.0, 5056.0, 4873.0, 4853.0),
    32: (7691.0, 6948.0, 6205.0, 5554.0, 7602.0, 7447.0, 7372.0, 7254.0),
    64: (9585.0, 8518.0, 7428.0, 6567.0, 8142.0, 7900.0, 7866.0, 7659.0),
}
"""Batch -> images a second of a ViT-B/16 in CUDA graphs, by gamma as in `GAMMAS` (benchmarks/results/gpu.json)."""
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
SHORT = ((0.03, 1.0), (0.06, 0.02))  # seconds to the deadline, and utility, of each task's two kinds of request


@dataclass(frozen=True, slots=True)
class Ground:
    """`loads`: name -> the requests of a seed, at most about so many seconds long. `width`: seconds, see `fluid`."""

    known: Knowledge
    loads: Mapping[str, Callable[[int, float], list[Request]]]
    width: float


def h200() -> Knowledge:
    """Return what is known of the H200: seconds between measured batches linear, accuracies those of published.py."""
    measured = [[batch / speeds[i] for batch, speeds in H200.items()] for i in range(len(GAMMAS))]
    rows = tuple(tuple(float(s) for s in np.interp(BUCKETS, list(H200), row)) for row in measured)
    table = LatencyTable(GAMMAS, BUCKETS, rows, BUCKETS)
    mean = {gamma: float(np.mean([shares[gamma] for shares in published.ACCURACY.values()])) for gamma in GAMMAS}
    return Knowledge(table, published.ACCURACY, rate_rule(table, mean, 64, 0.3))


def synthetic(scale: float, seed: int, seconds: float) -> list[Request]:
    return published.synthetic(scale, seed, published.SyntheticConfig(seconds=seconds))


def short(known: Knowledge, parts: tuple[tuple[float, float], ...], seed: int, seconds: float) -> list[Request]:
    """Return Poisson arrivals of requests with short deadlines; `parts`: load, of the capacity at gamma 0, and seconds."""
    rng, capacity = np.random.default_rng(seed), known.latency.throughput(0, BUCKETS[-1])
    kinds = [RequestKind(task, *kind) for task in known.accuracy for kind in SHORT]
    segments = [Segment(load * capacity, min(length, seconds)) for load, length in parts]
    return requests(piecewise(segments, rng), kinds, rng)


def grounds() -> dict[str, Ground]:
    gpu = h200()
    bursts = {
        "1.5x": ((1.5, 2.0),),
        "4x": ((4.0, 0.5),),
        "burst": ((0.4, 0.6), (2.5, 0.3), (0.4, 0.2)),
        "start": ((2.5, 0.3),),
    }
    return {
        CPU: Ground(
            published.profile(published.FIGURE_4B),
            {f"{scale:g}x": partial(synthetic, scale) for scale in (1.0, 1.5, 2.0, 3.0)},
            0.05,
        ),
        GPU: Ground(gpu, {name: partial(short, gpu, parts) for name, parts in bursts.items()}, 0.002),
    }


GROUNDS = grounds()
