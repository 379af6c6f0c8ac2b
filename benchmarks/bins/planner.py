"""The allocation by itself: seconds per plan at the paper's three sizes, and whether its plans are the best there are.

Instances are random, on the paper's latency facts of BERT-base and BERT-large: runtimes of equal steps up to 512, lengths
log-normal with a median of 21 to 200 tokens, a device serves one request after another (latency of B outstanding ones: the
mean of a queue of B). Half of the latency curves are bent at random, half of the demands Poisson counts. `arbitrary`
ones keep to no facts: any capacities, demands and rising curves. Every instance is timed thrice and the
least wall time counts, as other programs may run; the worst instance makes the bar. The first call is timed in new
processes, without and with what numba keeps on disk.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bins.published import BERT_BASE, BERT_LARGE, LONGEST
from benchmarks.results import Target
from pliant.bins.planning.allocate import Demand, allocate, allocate_streams, least_counts
from pliant.bins.planning.allocate_reference import (
    all_streams_tried,
    all_tried,
    milp_of_flat_latency,
    milp_of_paths,
    milp_without_carry,
)
from pliant.errors import WorkerError
from pliant.progress import Progress, silent

Floats = NDArray[np.float64]
Instance = tuple[list[Demand], int]

PUBLISHED = {(50, 8): 0.156, (200, 12): 0.623, (1000, 16): 2.612}  # seconds of the paper's solver, devices x runtimes
LIMITS = {(200, 12): 0.010, (1000, 16): 0.150}
LOADS = (0.3, 0.45, 0.6, 0.7, 0.8, 0.875, 0.95)
OVERLOADS = (1.1, 1.5, 3.0)
REPEATS = 3
FIRST = """
import time
from pliant.bins.planning.allocate import Demand, allocate
start = time.perf_counter()
allocate([Demand(3.5, 2.0, (0.1, 0.2, 0.3))] * 3, 9)
print(time.perf_counter() - start)
"""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one thread per plan, over all loads; `gap`: the greatest that was left unproven, as a share of cost."""

    devices: int
    runtimes: int
    instances: str  # realistic, arbitrary, or overload: realistic ones that no allocation within the bounds serves
    count: int
    mean: float
    worst: float
    proven: float  # share of instances
    gap: float
    published: float | None  # of the paper's solver, on its own instances and machine


@dataclass(frozen=True, slots=True)
class Equal:
    """How often the allocation costs as much as another way of solving the same, to a relative `within`."""

    name: str
    instances: int
    equal: int
    within: float


@dataclass(frozen=True, slots=True)
class Found:
    timings: tuple[Timing, ...]
    equals: tuple[Equal, ...]
    compile_seconds: float  # first call of all
    load_seconds: float  # first call of a later process

    def targets(self) -> list[Target]:
        worst = {(t.devices, t.runtimes): t.worst for t in self.timings if t.instances == "realistic"}
        timings = [
            Target(f"worst time per plan, {g} x {i}", 1e3 * worst[g, i], "<=", 1e3 * limit, "ms")
            for (g, i), limit in LIMITS.items()
        ]
        return timings + [Target(f"equal to {one.name}", one.equal / one.instances, ">=", 1.0) for one in self.equals]

    def table(self) -> list[tuple[str, ...]]:
        """Cells under HEAD."""
        return [
            (
                *(f"{t.devices} x {t.runtimes}", t.instances, str(t.count)),
                *(f"{1e3 * t.mean:.2f}", f"{1e3 * t.worst:.2f}", f"{t.proven:.0%}", f"{t.gap:.1e}"),
                f"{t.published:.3f} s, {t.published / t.worst:.0f}x" if t.published else "",
            )
            for t in self.timings
        ]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


HEAD = ("devices x runtimes", "instances", "count", "mean ms", "worst ms", "proven", "gap", "published solver")


def measure(progress: Progress = silent, seeds: int = 20) -> Found:
    """All timings with so many instances a load, and all comparisons; some two minutes at 20, most of it overload."""
    works: list[Callable[[], Timing | Equal]] = [*_timings(seeds), *_equals(5 * seeds)]
    first, later = first_calls()
    done: list[Timing | Equal] = []
    for at, work in enumerate(works, start=1):
        done.append(work())
        progress(at, len(works))
    timings = tuple(one for one in done if isinstance(one, Timing))
    return Found(timings, tuple(one for one in done if isinstance(one, Equal)), first, later)


def first_calls() -> tuple[float, float]:
    """Seconds of the first call in a process that has to compile, and in one that finds this on disk."""
    with tempfile.TemporaryDirectory() as kept:
        runs = [
            subprocess.run(
                [sys.executable, "-c", FIRST],
                env={**os.environ, "NUMBA_CACHE_DIR": kept},
                capture_output=True,
                text=True,
            )
            for _ in range(2)
        ]
    if any(run.returncode for run in runs):
        raise WorkerError(f"the allocation's first call failed: {runs[0].stderr or runs[1].stderr}")
    return float(runs[0].stdout), float(runs[1].stdout)


def realistic(rng: np.random.Generator, devices: int, runtimes: int, load: float) -> list[Demand]:
    """On the paper's facts; `load` is the share of all devices' capacity that the mean demand takes."""
    model = BERT_BASE if rng.random() < 0.5 else BERT_LARGE
    edges = np.ceil(LONGEST * np.arange(1, runtimes + 1) / runtimes)
    line = 1 / model.ratio + (1 - 1 / model.ratio) * np.maximum(edges - 64, 0) / (LONGEST - 64)
    seconds = model.longest * np.maximum.accumulate(line * np.exp(rng.normal(0, 0.03, runtimes)))
    lengths = np.exp(rng.normal(np.log(rng.uniform(21, 200)), rng.uniform(0.4, 1.1), 20_000))
    share = np.histogram(np.clip(lengths, 1, LONGEST), [0, *edges])[0] / len(lengths)
    backlog = np.arange(2 * int(model.slo / seconds[0]))
    curves = seconds[:, None] * np.maximum(1.0, (backlog + 1) / 2)
    if rng.random() < 0.5:
        curves = _bent(rng, curves)
    return _demands(rng, share, model.slo / seconds, curves, load * devices)


def arbitrary(rng: np.random.Generator, devices: int, runtimes: int, load: float) -> list[Demand]:
    """Any capacities, in any order, any demands, and curves that rise slower or faster than a queue's, from 0 or not."""
    capacity = rng.uniform(8, 200, runtimes)
    share = rng.dirichlet(np.full(runtimes, rng.choice([0.2, 1.0, 10.0])))
    curves = np.arange(2 * int(capacity.max()))[None, :] ** rng.choice([0.5, 1.0, 1.5]) / capacity[:, None]
    curves = _bent(rng, curves + (1.0 / capacity[:, None] if rng.random() < 0.5 else 0.0))
    return _demands(rng, share, capacity, curves, load * devices)


def _bent(rng: np.random.Generator, curves: Floats) -> Floats:
    rises = np.diff(curves, axis=1)
    start = curves[:, :1]
    return np.concatenate((start, start + np.cumsum(rises * np.exp(rng.normal(0, 0.5, rises.shape)), axis=1)), axis=1)


def _demands(
    rng: np.random.Generator, share: Floats, capacity: Floats, curves: Floats, busy_devices: float
) -> list[Demand]:
    whole, counted = rng.random(2) < 0.5
    capacity = np.maximum(np.floor(capacity), 1.0) if whole else capacity
    requests = share * busy_devices / (share / capacity).sum()
    requests = rng.poisson(8 * requests) / 8 if counted else requests
    return [
        Demand(float(q), float(m), tuple(row.tolist())) for q, m, row in zip(requests, capacity, curves, strict=True)
    ]


def _timings(seeds: int) -> Iterator[Callable[[], Timing]]:
    for size in PUBLISHED:
        for name, make, loads, count in (
            ("realistic", realistic, LOADS, seeds),
            ("arbitrary", arbitrary, LOADS, seeds),
            ("overload", realistic, OVERLOADS, max(seeds // 10, 1)),
        ):
            instances = [(size, make, load, seed) for load in loads for seed in range(count)]
            yield partial(_timed, name, size, instances)


def _timed(name: str, size: tuple[int, int], instances: Sequence[tuple[Any, ...]]) -> Timing:
    devices, runtimes = size
    seconds, gaps = [], []
    for _, make, load, seed in instances:
        demands = make(np.random.default_rng(seed), devices, runtimes, load)
        times = []
        for _ in range(REPEATS if name != "overload" else 1):
            start = time.perf_counter()
            found = allocate(demands, devices)
            times.append(time.perf_counter() - start)
        seconds.append(min(times))
        gaps.append(found.gap)
    proven = float(np.mean(np.array(gaps) == 0.0))
    published = PUBLISHED[size] if name == "realistic" else None
    mean, worst = float(np.mean(seconds)), max(seconds)
    return Timing(devices, runtimes, name, len(seconds), mean, worst, proven, max(gaps), published)


def _equals(instances: int) -> Iterator[Callable[[], Equal]]:
    def small(seed: int) -> Instance:
        rng = np.random.default_rng(seed)
        make, devices = (realistic, arbitrary)[seed % 2], int(rng.integers(3, 12))
        return make(rng, devices, int(rng.integers(2, 6)), rng.uniform(0.2, 1.6)), devices

    def middle(seed: int) -> Instance:
        rng = np.random.default_rng(seed)
        return (realistic, arbitrary)[seed % 2](rng, 24, 6, rng.uniform(0.5, 0.9)), 24

    def flat(seed: int) -> Instance:
        demands, devices = middle(seed)
        return [replace(demand, latency=demand.latency[1:2]) for demand in demands], devices

    def multiples(seed: int) -> Instance:
        rng = np.random.default_rng(seed)
        demands = realistic(rng, 100, 12, 0.8)
        demands = [replace(d, requests=float(np.floor(d.requests / d.capacity)), capacity=1.0) for d in demands]
        return demands, sum(least_counts(demands)) + int(rng.integers(0, 30))

    def tried(demands: list[Demand], devices: int) -> float:
        return all_tried(demands, devices)[0]

    for name, make, solve, within in (
        ("all allocations tried", small, tried, 1e-11),
        ("milp over all states with carries", middle, milp_of_paths, 1e-6),
        ("milp with carries, flat latency", flat, milp_of_flat_latency, 1e-5),
        ("milp where no carry can arise", multiples, milp_without_carry, 1e-6),
    ):
        yield partial(_compared, name, make, solve, within, instances)
    yield partial(_streams_compared, instances)


def _compared(
    name: str,
    make: Callable[[int], Instance],
    solve: Callable[[list[Demand], int], float],
    within: float,
    instances: int,
) -> Equal:
    equal = 0
    for seed in range(instances):
        demands, devices = make(seed)
        found, other = allocate(demands, devices).cost, solve(demands, devices)
        equal += abs(found - other) <= within * max(abs(other), 1e-12)
    return Equal(name, instances, equal, within)


def _streams_compared(instances: int) -> Equal:
    equal = 0
    for seed in range(instances):
        rng = np.random.default_rng(seed)
        streams = [make(rng, 4, 2, rng.uniform(0.2, 1.4)) for make in (realistic, arbitrary)]
        found, other = sum(one.cost for one in allocate_streams(streams, 8)), all_streams_tried(streams, 8)[0]
        equal += abs(found - other) <= 1e-11 * other
    return Equal("all divisions of two streams tried", instances, equal, 1e-11)
