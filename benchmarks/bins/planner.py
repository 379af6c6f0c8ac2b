"""The allocation by itself: seconds per plan at the paper's three sizes.

Instances are random, on the paper's latency facts of BERT-base and BERT-large: runtimes of equal steps up to 512, lengths
log-normal with a median of 21 to 200 tokens, a device serves one request after another (latency of B outstanding ones: the
mean of a queue of B). Half of the latency curves are bent at random, half of the demands Poisson counts. Every instance is
timed thrice and the least wall time counts, as other programs may run; the worst instance is judged. That plans are the best
there are is tested in tests/pliant/bins/planning.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import seconds_of
from pliant.bins.planning.allocate import Demand, allocate
from pliant.bins.published import BERT_BASE, BERT_LARGE, LONGEST

Floats = NDArray[np.float64]

PUBLISHED = {(50, 8): 0.156, (200, 12): 0.623, (1000, 16): 2.612}  # seconds of the paper's solver, devices x runtimes
LIMITS = {(200, 12): 10.0, (1000, 16): 150.0}  # milliseconds
LOADS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.875, 0.95)
REPEATS = 3


def planner(context: Context) -> Measured:
    """Time so many instances a load and size, and judge the worst; seconds of one thread per plan."""
    timings, worst = list[dict[str, float]](), {}
    with context.stage("allocation, exact") as progress:
        for (devices, runtimes), published in PUBLISHED.items():
            seconds = []
            for load, seed in product(LOADS, range(20 if context.full else 6)):
                demands = realistic(np.random.default_rng(seed), devices, runtimes, load)
                seconds.append(min(seconds_of(partial(allocate, demands, devices)) for _ in range(REPEATS)))
            worst[devices, runtimes] = max(seconds)
            size = {"devices": devices, "runtimes": runtimes, "instances": len(seconds), "published": published}
            timings.append({**size, "mean": float(np.mean(seconds)), "worst": max(seconds)})
            progress(len(timings), len(PUBLISHED))
    targets = [
        Target(f"worst time per plan, {devices} x {runtimes}", 1e3 * worst[devices, runtimes], "<=", limit, "ms")
        for (devices, runtimes), limit in LIMITS.items()
    ]
    return targets, {"timings": timings}


def realistic(rng: np.random.Generator, devices: int, runtimes: int, load: float) -> list[Demand]:
    """Draw an instance on the paper's facts; `load` is the share of all devices' capacity that the mean demand takes."""
    model = BERT_BASE if rng.random() < 0.5 else BERT_LARGE
    edges = np.ceil(LONGEST * np.arange(1, runtimes + 1) / runtimes)
    line = 1 / model.ratio + (1 - 1 / model.ratio) * np.maximum(edges - 64, 0) / (LONGEST - 64)
    seconds = model.longest * np.maximum.accumulate(line * np.exp(rng.normal(0, 0.03, runtimes)))
    lengths = np.exp(rng.normal(np.log(rng.uniform(21, 200)), rng.uniform(0.4, 1.1), 20_000))
    share = np.histogram(np.clip(lengths, 1, LONGEST), [0, *edges])[0] / len(lengths)
    backlog = np.arange(2 * int(model.slo / seconds[0]))
    curves = seconds[:, None] * np.maximum(1.0, (backlog + 1) / 2)
    if rng.random() < 0.5:
        rises = np.diff(curves, axis=1)
        bent = np.cumsum(rises * np.exp(rng.normal(0, 0.5, rises.shape)), axis=1)
        curves = np.concatenate((curves[:, :1], curves[:, :1] + bent), axis=1)
    capacity = model.slo / seconds
    whole, counted = rng.random(2) < 0.5
    capacity = np.maximum(np.floor(capacity), 1.0) if whole else capacity
    requests = share * load * devices / (share / capacity).sum()
    requests = rng.poisson(8 * requests) / 8 if counted else requests
    rows = zip(requests, capacity, curves, strict=True)
    return [Demand(float(demand), float(most), tuple(curve.tolist())) for demand, most, curve in rows]
