"""The planner by itself: seconds per plan.

Queues are random: the published kinds of request, arrived over 0.2 to 0.6 s and gathered by Algorithm 1, batches of at
least 32; durations and accuracies from pliant/tokens/published.py. That plans are the best there are is tested in
tests/pliant/tokens; what they earn against the published programme stands in docs/log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Target
from benchmarks.timing import seconds_of
from pliant.tokens.batching import Batch, BatchingConfig, Queue
from pliant.tokens.plan import PlannedBatch, plan, planned_batch
from pliant.tokens.policy import Knowledge
from pliant.tokens.published import FIGURE_4B, KINDS, profile
from pliant.workload import requests

Floats = NDArray[np.float64]

BUCKET = 0.01  # what the scheduler uses for long queues
LEAST = 32  # requests in a batch
LIMITS = {16: 2.0, 32: 10.0}  # milliseconds per plan, by batches
REPEATS = 5
HEADINGS = ("batches", "devices", "patient", "ms per plan", "p99", "ms for views")


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
class PlannerTimings:
    timings: tuple[Timing, ...]

    def targets(self) -> list[Target]:
        """Judge medians of plan alone on one device; the slower kind of queue counts."""
        slowest = {n: max(t.median for t in self.timings if (t.batches, t.devices) == (n, 1)) for n in LIMITS}
        return [
            Target(f"time per plan, {n} batches", 1e3 * slowest[n], "<=", limit, "ms") for n, limit in LIMITS.items()
        ]

    def table(self) -> list[tuple[str, ...]]:
        """Return the cells under HEADINGS."""
        rows: list[tuple[str, ...]] = []
        for t in self.timings:
            milliseconds = (f"{1e3 * seconds:.2f}" for seconds in (t.median, t.p99, t.views))
            rows.append((str(t.batches), str(t.devices), "yes" if t.patient else "no", *milliseconds))
        return rows

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def measure(queues: int, seed: int = 0) -> PlannerTimings:
    """Time the plans of so many queues of each kind. Timings are only as quiet as the machine."""
    rng, known = np.random.default_rng(seed), profile(FIGURE_4B)
    kinds = [(n, 1, patient) for patient in (False, True) for n in (8, 16, 32, 64)] + [(32, 4, False)]
    return PlannerTimings(tuple(_timing(rng, known, *kind, queues) for kind in kinds))


def _timing(
    rng: np.random.Generator, known: Knowledge, batches: int, devices: int, patient: bool, queues: int
) -> Timing:
    clocks = [0.02 * device for device in range(devices)]
    seconds_GN = known.latency.dense(BatchingConfig().max_batch)
    planning: list[float] = []
    viewing: list[float] = []
    for _ in range(queues):
        later = rng.uniform(0.0, 1.0) if patient else 0.0
        views = partial(_views, _waiting(_gathered(rng, batches), known, later))
        planning += _seconds(partial(plan, views(), seconds_GN, clocks, BUCKET))
        viewing += _seconds(views)
    median, p99 = np.percentile(planning, (50, 99))
    return Timing(batches, devices, patient, float(median), float(p99), float(np.median(viewing)))


def _gathered(rng: np.random.Generator, batches: int) -> list[Batch]:
    """Return so many batches by deadline, as Algorithm 1 gathers a load that came within 0.2 to 0.6 s up to time 0."""
    times = np.sort(rng.uniform(-rng.uniform(0.2, 0.6), 0.0, 64 * batches + 160))
    queue = Queue(BatchingConfig())
    for request in requests(times, KINDS, rng):
        queue.add(request)
    large = [batch for batch in queue.batches if len(batch.requests) >= LEAST]
    return large[:batches] if len(large) >= batches else _gathered(rng, batches)


def _waiting(gathered: Sequence[Batch], known: Knowledge, later: float) -> list[tuple[Floats, Floats]]:
    """Return deadlines [n], `later` by so many seconds, and expected utility [gammas, n] of each batch."""
    settings = known.latency.settings
    worth = {task: np.array([share[setting] for setting in settings]) for task, share in known.accuracy.items()}
    waiting = []
    for batch in gathered:
        members = batch.requests.values()
        value_GN = np.array([request.utility * worth[request.task] for request in members]).T
        waiting.append((np.array([request.deadline for request in members]) + later, value_GN))
    return waiting


def _views(waiting: Sequence[tuple[Floats, Floats]]) -> list[PlannedBatch]:
    return [planned_batch(*batch) for batch in waiting]


def _seconds(call: Callable[[], object]) -> list[float]:
    """Return the seconds of each repeat; the first time warms the caches up and does not count."""
    return [seconds_of(call) for _ in range(REPEATS + 1)][1:]
