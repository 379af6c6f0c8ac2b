"""How many requests a second the scheduler dispatches to 1,200 instances of 12 runtimes, one by one.

A journal of the scheduler is made in virtual time and its events are given to a fresh scheduler again; what is timed are its
calls of `handle` with an arrival, each one decision with its launch. A call of more than `PREEMPTED` seconds was interrupted
(by another program: no path of the scheduler takes that long without a plan, and no plan falls into it) and is left out.
The garbage collector runs, but not over the journal. One thread.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.bins import traces
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.bins.artifact import Shape
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.published import BERT_BASE, LONGEST, published_bins
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.protocol import Arrived, Request, Woke
from pliant.simulator import simulate

INSTANCES, RUNTIMES = 1200, 12
UTILISATIONS = (0.5, 0.8)
HANDLED = ("completion", "published")  # dispatches
LIMIT = 150e3  # decisions/s
REQUESTS, REPEATS = 60_000, 3
PREEMPTED = 1e-3  # seconds
NO_PLAN = 1000.0  # seconds between plans: longer than any trace here


def dispatch(context: Context) -> Measured:
    """Judge the worst dispatch at the worst utilisation."""
    need(traces.missing())
    rates, cases = list[dict[str, Any]](), list(product(HANDLED, UTILISATIONS))
    with context.stage("dispatch") as progress:
        for name, utilisation in cases:
            rate = decisions(name, load(utilisation, REQUESTS, traces.stretched()[0]))
            rates.append({"dispatch": name, "utilisation": utilisation, "per_second": rate})
            progress(len(rates), len(cases))
    worst = min(rate["per_second"] for rate in rates)
    name = f"dispatch by handle, {INSTANCES} instances, {RUNTIMES} runtimes"
    return [Target(name, worst, ">=", LIMIT, "decisions/s")], {"rates": rates, "preempted_seconds": PREEMPTED}


@dataclass(frozen=True)
class Load:
    """Requests on a pool that is deployed for them."""

    known: Knowledge
    held: tuple[int, ...]
    requests: list[Request]

    def scheduler(self, dispatch: str) -> BinsScheduler:
        """Return a fresh one."""
        workers = len(self.held)
        config = Config(workers, dispatch, period=NO_PLAN, max_waiting=10**6, drop_late=False, deployed=self.held)
        return BinsScheduler(self.known, config)


def load(utilisation: float, count: int, lengths: NDArray[np.int64], instances: int = INSTANCES) -> Load:
    """Draw Poisson arrivals whose work, each in its own bin, is `utilisation` of the instances.

    The runtimes are BERT-base's in equal steps, deployed by the share [R] of requests in their bins.
    """
    edges = np.ceil(LONGEST * np.arange(1, RUNTIMES + 1) / RUNTIMES).astype(int)
    share = np.bincount(np.searchsorted(edges, lengths), minlength=RUNTIMES) / len(lengths)
    shapes = (*(Shape(int(edge), 1) for edge in edges), Shape(LONGEST, 1, True))
    seconds = tuple(BERT_BASE.dynamic_seconds(float(edge)) / BERT_BASE.factor for edge in edges)
    known = knowledge_of(
        [replace(published_bins(BERT_BASE, traces.stretched()[0]), shapes=shapes, seconds=seconds)], "static", "single"
    )
    held, mean = tuple(start_plan(known, instances, share.tolist())), float(share @ [r.alone for r in known.runtimes])
    rng, stream = np.random.default_rng(0), known.streams[0]
    times = np.cumsum(rng.exponential(mean / (utilisation * instances), count))
    arrivals = zip(times.tolist(), rng.choice(lengths, count).tolist(), strict=True)
    requests = [Request(i, at, at + stream.slo, stream.name, 1.0, of) for i, (at, of) in enumerate(arrivals)]
    return Load(known, held, requests)


def decisions(dispatch: str, offered: Load) -> float:
    """Time every call of `handle` with an arrival, the clock's own time within; return the best repeat's decisions/s.

    The first tenth of the events fills the pool and is not timed.
    """
    journal = simulate(offered.scheduler(dispatch), offered.requests, SimulatedBins(offered.known, offered.requests))
    events = [(entry.event, entry.now) for entry in journal if not isinstance(entry.event, Woke)]  # the plan at its end
    del journal
    means = []
    for _ in range(REPEATS):
        handle, clock, warm = offered.scheduler(dispatch).handle, time.perf_counter, len(events) // 10
        seconds: list[float] = []
        gc.collect()
        gc.freeze()
        for number, (event, now) in enumerate(events):
            start = clock()
            handle(event, now)
            if number >= warm and type(event) is Arrived:
                seconds.append(clock() - start)
        gc.unfreeze()
        timed = np.array(seconds)
        means.append(float(timed[timed < PREEMPTED].mean()))
    return 1 / min(means)
