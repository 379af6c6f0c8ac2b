"""The planner by itself: seconds per plan.

Queues are random: the published kinds of request, arrived over 0.2 to 0.6 s and gathered by Algorithm 1, batches of at
least 32; durations and accuracies from pliant/tokens/published.py. That plans are the best there are is tested in
tests/pliant/tokens.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import seconds_of
from pliant.tokens.adaptive import plan, planned_batch
from pliant.tokens.batched import Batch, BatchingConfig, Queue
from pliant.tokens.published import FIGURE_4B, KINDS, profile
from pliant.tokens.scheduler import Knowledge
from pliant.workload import requests

Floats = NDArray[np.float64]

BUCKET = 0.01  # what the scheduler uses for long queues
LEAST = 32  # requests in a batch
LIMITS = {16: 2.0, 32: 10.0}  # milliseconds per plan, by batches
REPEATS = 5


def planner(context: Context) -> Measured:
    """Judge medians of plans; the slower kind of queue counts."""
    with context.stage("planner") as progress:
        timings = measure(100 if context.full else 10)
        progress(1, 1)
    slowest = {n: max(t["median"] for t in timings if t["batches"] == n) for n in LIMITS}
    targets = [Target(f"time per plan, {n} batches", slowest[n], "<=", limit, "ms") for n, limit in LIMITS.items()]
    return targets, {"timings": timings}


def measure(queues: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return the milliseconds of one thread of plans for so many queues of each kind, over all queues and repeats.

    `patient`: up to a second more to all deadlines: more choices stay possible, so the frontier is longer. Timings are only
    as quiet as the machine.
    """
    rng, known, timings = np.random.default_rng(seed), profile(FIGURE_4B), []
    seconds_GN = known.latency.dense(BatchingConfig().max_batch)
    for patient, batches in product((False, True), LIMITS):
        planning = list[float]()
        for _ in range(queues):
            waiting = values(gathered(rng, batches), known, rng.uniform(0.0, 1.0) if patient else 0.0)
            planned = partial(plan, [planned_batch(*batch) for batch in waiting], seconds_GN, [0.0], BUCKET)
            # The first time warms the caches up and does not count.
            planning += [seconds_of(planned) for _ in range(REPEATS + 1)][1:]
        median, p99 = map(float, 1e3 * np.percentile(planning, (50, 99)))
        timings.append({"batches": batches, "patient": patient, "median": median, "p99": p99})
    return timings


def gathered(rng: np.random.Generator, batches: int) -> list[Batch]:
    """Return so many batches by deadline, as Algorithm 1 gathers a load that came within 0.2 to 0.6 s up to time 0."""
    times = np.sort(rng.uniform(-rng.uniform(0.2, 0.6), 0.0, 64 * batches + 160))
    queue = Queue(BatchingConfig())
    for request in requests(times, KINDS, rng):
        queue.add(request)
    large = [batch for batch in queue.batches if len(batch.requests) >= LEAST]
    return large[:batches] if len(large) >= batches else gathered(rng, batches)


def values(batches: list[Batch], known: Knowledge, later: float) -> list[tuple[Floats, Floats]]:
    """Return deadlines [n], `later` by so many seconds, and expected utility [gammas, n] of each batch."""
    settings = known.latency.settings
    worth = {task: np.array([share[setting] for setting in settings]) for task, share in known.accuracy.items()}
    waiting = []
    for batch in batches:
        members = batch.requests.values()
        value_GN = np.array([request.utility * worth[request.task] for request in members]).T
        waiting.append((np.array([request.deadline for request in members]) + later, value_GN))
    return waiting
