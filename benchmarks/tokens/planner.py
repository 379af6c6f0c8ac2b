"""The planner by itself: seconds per plan, and what its plans earn against the published programme and brute force.

Queues are random: the published kinds of request, arrived over 0.2 to 0.6 s and gathered by Algorithm 1, batches of at
least 32; durations and accuracies from pliant/tokens/published.py. All plans are judged by one count, made here and not
by the planner: batches start in order on the device that falls free first, a request counts if its batch ends in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Target
from pliant.tokens.batching import Batch, BatchingConfig, Queue
from pliant.tokens.otas_plan import OtasBatch, otas_plan
from pliant.tokens.plan import DROP, PlannedBatch, plan, planned_batch
from pliant.tokens.policy import Knowledge
from pliant.tokens.published import FIGURE_4B, KINDS, profile
from pliant.workload import requests

Floats = NDArray[np.float64]
Choices = Sequence[int]

BUCKET = 0.01  # what the scheduler uses for long queues
LEAST = 32  # requests in a batch
TINY = (-15, -5, 0, 8)  # gammas where all choices are tried


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one thread, over all queues and repeats; `views` is what the planner is given of the batches."""

    batches: int
    devices: int
    patient: bool  # up to a second more to all deadlines: more choices stay possible, so the frontier is longer
    median: float  # of plan alone
    p99: float
    views: float  # median of making the views, which a scheduler pays as well


@dataclass(frozen=True, slots=True)
class Gap:
    """What one kind of plan earns over what another earns on the same queues; 1 where both earn the same."""

    name: str
    batches: int
    queues: int
    worst: float
    p5: float
    median: float
    p95: float
    best: float
    mean: float
    equal: float  # share of queues, to a relative 1e-9


TIMING_HEAD = ("batches", "devices", "patient", "ms per plan", "p99", "ms for views")
GAP_HEAD = ("earned", "batches", "queues", "worst", "5%", "median", "95%", "best", "mean", "equal")


@dataclass(frozen=True, slots=True)
class Planner:
    timings: tuple[Timing, ...]
    gaps: tuple[Gap, ...]

    def targets(self) -> list[Target]:
        """Medians of plan alone on one device; the slower kind of queue counts."""
        limits = {16: 2.0, 32: 10.0}
        slowest = {n: max(t.median for t in self.timings if (t.batches, t.devices) == (n, 1)) for n in limits}
        return [Target(f"time per plan, {n} batches", 1000 * slowest[n], "<=", limits[n], "ms") for n in limits]

    def timing_rows(self) -> list[tuple[str, ...]]:
        """Cells under TIMING_HEAD."""
        return [
            (str(t.batches), str(t.devices), "yes" if t.patient else "no", *_milliseconds(t.median, t.p99, t.views))
            for t in self.timings
        ]

    def gap_rows(self) -> list[tuple[str, ...]]:
        """Cells under GAP_HEAD."""
        rows = [tuple(asdict(gap).values()) for gap in self.gaps]
        return [tuple(f"{v:.4f}" if isinstance(v, float) else str(v) for v in row) for row in rows]

    def plain(self) -> dict[str, Any]:
        return {"timings": [asdict(t) for t in self.timings], "gaps": [asdict(g) for g in self.gaps]}


def _milliseconds(*seconds: float) -> tuple[str, ...]:
    return tuple(f"{1000 * value:.2f}" for value in seconds)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queue by deadline, apart from how any planner sees it: deadlines [n] and expected utility [gammas, n] a batch."""

    batches: tuple[tuple[Floats, Floats], ...]
    seconds_GN: Floats
    clocks: tuple[float, ...] = (0.0,)

    def views(self) -> list[PlannedBatch]:
        return [planned_batch(*batch) for batch in self.batches]

    def planned(self, bucket: float = 0.0) -> Choices:
        return plan(self.views(), self.seconds_GN, self.clocks, bucket).choices

    def published(self) -> Choices:
        sample_G = self.seconds_GN[:, -1] / (self.seconds_GN.shape[1] - 1)
        batches = [OtasBatch(float(d.min()), len(d) * sample_G, v.sum(axis=1)) for d, v in self.batches]
        return otas_plan(batches, self.clocks[0])

    def earned(self, choices: Choices) -> float:
        """By the count of this file's head."""
        free, total = list(self.clocks), 0.0
        for (deadlines, value_GN), choice in zip(self.batches, choices, strict=True):
            if choice != DROP:
                device = free.index(min(free))
                free[device] += float(self.seconds_GN[choice, len(deadlines)])
                total += float(value_GN[choice] @ (deadlines >= free[device]))
        return total

    def whole(self) -> Waiting:
        """The same with one deadline a batch, its earliest."""
        return replace(self, batches=tuple((np.full_like(d, d.min()), v) for d, v in self.batches))

    def patient(self, rng: np.random.Generator) -> Waiting:
        """The same with up to a second more to all deadlines."""
        later = rng.uniform(0.0, 1.0)
        return replace(self, batches=tuple((d + later, v) for d, v in self.batches))


def measure(seed: int = 0, quick: bool = True) -> Planner:
    """All timings and gaps; below 30 s if quick. Timings are only as quiet as the machine."""
    return measure_over(40 if quick else 400, seed)


def measure_over(queues: int, seed: int) -> Planner:
    """The same with so many queues for each comparison, and a quarter of that for each timing."""
    rng = np.random.default_rng(seed)
    known = profile(FIGURE_4B)
    shapes = [(n, 1, patient) for patient in (False, True) for n in (8, 16, 32, 64)] + [(32, 4, False)]
    timings = [_timing(rng, known, *shape, max(queues // 4, 1)) for shape in shapes]
    gaps = [gap for n in (8, 16, 32) for gap in _against_published([_waiting(rng, known, n) for _ in range(queues)])]
    gaps += [_bucketed([_waiting(rng, known, n).patient(rng) for _ in range(queues)]) for n in (16, 32)]
    gaps += [_against_all_choices([_tiny(rng, known, devices) for _ in range(queues)]) for devices in (1, 2)]
    return Planner(tuple(timings), tuple(gaps))


def _waiting(rng: np.random.Generator, known: Knowledge, batches: int) -> Waiting:
    settings = known.latency.settings
    worth = {task: np.array([share[s] for s in settings]) for task, share in known.accuracy.items()}
    made = []
    for batch in _gathered(rng, batches):
        members = batch.requests.values()
        value_GN = np.array([r.utility * worth[r.task] for r in members]).T
        made.append((np.array([r.deadline for r in members]), value_GN))
    return Waiting(tuple(made), known.latency.dense(BatchingConfig().most))


def _gathered(rng: np.random.Generator, batches: int) -> list[Batch]:
    """So many batches by deadline, as Algorithm 1 gathers a load that came within 0.2 to 0.6 s up to time 0."""
    times = np.sort(rng.uniform(-rng.uniform(0.2, 0.6), 0.0, 64 * batches + 160))
    queue = Queue(BatchingConfig())
    for request in requests(times, KINDS, rng):
        queue.add(request)
    large = [batch for batch in queue.batches if len(batch.requests) >= LEAST]
    return large[:batches] if len(large) >= batches else _gathered(rng, batches)


def _tiny(rng: np.random.Generator, known: Knowledge, devices: int) -> Waiting:
    """4 batches and 4 gammas with little time left."""
    clocks = tuple(float(at) for at in rng.uniform(0.1, 0.4, devices))
    return replace(_waiting(rng, known.only(TINY), 4), clocks=clocks)


def _timing(
    rng: np.random.Generator, known: Knowledge, batches: int, devices: int, patient: bool, queues: int
) -> Timing:
    clocks = [0.02 * device for device in range(devices)]
    planning: list[float] = []
    viewing: list[float] = []
    for _ in range(queues):
        made = _waiting(rng, known, batches)
        made = made.patient(rng) if patient else made
        planning += _seconds(partial(plan, made.views(), made.seconds_GN, clocks, BUCKET))
        viewing += _seconds(made.views)
    median, p99 = np.percentile(planning, (50, 99))
    return Timing(batches, devices, patient, float(median), float(p99), float(np.median(viewing)))


def _seconds(act: Callable[[], object], repeats: int = 6) -> list[float]:
    """The first time warms the caches up and does not count."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return times[1:]


def _against_published(queues: Sequence[Waiting]) -> list[Gap]:
    """The published programme against the exact planner: as a whole, and split into its two reasons."""
    told, states, deadlines = [], [], []
    for queue in queues:
        best, whole = queue.earned(queue.planned()), queue.whole()
        published, one_deadline = queue.published(), whole.planned()
        told.append(queue.earned(published) / best)
        states.append(whole.earned(published) / whole.earned(one_deadline))
        deadlines.append(queue.earned(one_deadline) / best)
    batches = len(queues[0].batches)
    return [
        _gap("published programme / exact planner", batches, told),
        _gap("its one state per (batch, gamma): published / exact, both with one deadline a batch", batches, states),
        _gap("its one deadline a batch: exact with one / exact with each request's", batches, deadlines),
    ]


def _bucketed(queues: Sequence[Waiting]) -> Gap:
    ratios = [queue.earned(queue.planned(BUCKET)) / queue.earned(queue.planned()) for queue in queues]
    return _gap(f"planner at {BUCKET:.0%} / exact planner, patient requests", len(queues[0].batches), ratios)


def _against_all_choices(queues: Sequence[Waiting]) -> Gap:
    ratios = []
    for queue in queues:
        options = product((DROP, *range(len(TINY))), repeat=len(queue.batches))
        best = max(map(queue.earned, options))
        ratios.append(queue.earned(queue.planned()) / best if best else 1.0)
    devices = len(queues[0].clocks)
    return _gap(f"planner / best of all choices, {devices} device{'s' * (devices > 1)}", len(queues[0].batches), ratios)


def _gap(name: str, batches: int, ratios: Sequence[float]) -> Gap:
    worst, p5, median, p95, best = (float(v) for v in np.percentile(ratios, (0, 5, 50, 95, 100)))
    equal = float(np.mean(np.abs(np.asarray(ratios) - 1.0) < 1e-9))
    return Gap(name, batches, len(ratios), worst, p5, median, p95, best, float(np.mean(ratios)), equal)
