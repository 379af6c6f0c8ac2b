"""How many requests a second are dispatched to 1,200 instances of 12 runtimes: in batch by compiled code, or one by one.

In batch: `Replay.serve` on Poisson arrivals, which besides the decisions keeps the books of all that is served; also
a burst of 2,400 at once onto idle devices, the size of which the paper tells 0.737 ms (3.26 million/s, other hardware). One
by one: a journal of the scheduler is made in virtual time and its events are given to a fresh scheduler again; what is
timed are its calls of `handle`. The bar is about those with an arrival, each one decision with its launch. A call of more
than `PREEMPTED` seconds was interrupted (by another program: no path of the scheduler takes that long without a plan, and
no plan falls into it) and is left out. The garbage collector runs, but not over the journal. One thread.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bins import traces
from benchmarks.bins.published import BERT_BASE, LONGEST
from benchmarks.bins.study import published_bins
from benchmarks.results import Target
from pliant.bins.artifact import Shape
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.replay import Pool, Replay
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import WorkerError
from pliant.progress import Progress, silent
from pliant.protocol import Arrived, Event, Request, Woke
from pliant.simulator import simulate

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

INSTANCES, RUNTIMES, BURST = 1200, 12, 2400
PUBLISHED = BURST / 0.000737  # decisions/s
UTILISATIONS = (0.5, 0.8)
HANDLED = ("completion", "published")
BATCH_LIMIT, HANDLE_LIMIT = 1e6, 150e3
REPEATS = 3
PREEMPTED = 1e-3  # seconds
NO_PLAN = 1000.0  # seconds between plans: longer than any trace here
HEAD = (
    *("how", "dispatch", "utilisation", "decisions", "decisions/s"),
    *("median us", "mean us", "left out", "with ends, /s"),
)
FIRST = """
import time
import numpy as np
from pliant.bins.replay import Pool, Replay
pool = Pool(np.ones(2), np.ones(2), np.full(2, 2, np.int64), np.zeros(2, np.bool_), 0)
start = time.perf_counter()
Replay(pool, [0, 1], 2).serve(np.zeros(2), np.zeros(2, np.int64))
print(time.perf_counter() - start)
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Best of the repeats. `utilisation` infinite: a burst at one instant."""

    dispatch: str
    utilisation: float
    decisions: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Handled:
    """Seconds of the calls with an arrival. `left_out`: share of them that were interrupted; `with_ends`: requests/s of
    arrivals and ends together."""

    dispatch: str
    utilisation: float
    decisions: int
    median: float
    mean: float
    left_out: float
    with_ends: float


@dataclass(frozen=True, slots=True)
class Found:
    batch: tuple[Batch, ...]
    handled: tuple[Handled, ...]
    compile_seconds: float  # first call of all
    load_seconds: float  # first call of a later process

    def targets(self) -> list[Target]:
        """The worst policy at the worst utilisation counts; INFaaS's, which searches all instances, is among them."""
        worst = max(one.mean for one in self.handled)
        size = f"{INSTANCES} instances, {RUNTIMES} runtimes"
        return [
            Target(
                f"dispatch in batch, {size}",
                min(one.per_second for one in self.batch),
                ">=",
                BATCH_LIMIT,
                "decisions/s",
            ),
            Target(f"dispatch by handle, {size}", 1 / worst, ">=", HANDLE_LIMIT, "decisions/s"),
        ]

    def table(self) -> list[tuple[str, ...]]:
        """Cells under HEAD."""
        batch: list[tuple[str, ...]] = [
            ("batch", one.dispatch, _load(one.utilisation), f"{one.decisions:,}", f"{one.per_second:,.0f}", *4 * ("",))
            for one in self.batch
        ]
        return batch + [
            (
                *("handle", one.dispatch, _load(one.utilisation), f"{one.decisions:,}", f"{1 / one.mean:,.0f}"),
                *(f"{1e6 * one.median:.2f}", f"{1e6 * one.mean:.2f}", f"{one.left_out:.2%}", f"{one.with_ends:,.0f}"),
            )
            for one in self.handled
        ]

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"published_per_second": PUBLISHED, "preempted_seconds": PREEMPTED}


def _load(utilisation: float) -> str:
    return f"{utilisation:g}" if np.isfinite(utilisation) else "burst"


@dataclass(frozen=True)
class Load:
    """Requests on a pool that is deployed for them."""

    known: Knowledge
    held: tuple[int, ...]
    times: Floats
    lengths: Ints

    @property
    def first(self) -> Ints:
        """[n] the shortest runtime with sufficient length."""
        found: Ints = np.searchsorted([one.length for one in self.known.runtimes], self.lengths).astype(np.int64)
        return found

    def requests(self) -> list[Request]:
        name, slo = self.known.streams[0].name, self.known.streams[0].slo
        told = zip(self.times.tolist(), self.lengths.tolist(), strict=True)
        return [Request(i, at, at + slo, name, 1.0, length) for i, (at, length) in enumerate(told)]


def measure(
    progress: Progress = silent, requests: int = 60_000, batch: int = 500_000, lengths: Ints | None = None
) -> Found:
    """`requests` by handle and `batch` in batch, for each policy and utilisation; half a minute.

    `lengths` of requests are drawn from these; without them from the recorded ones. Raises `InputError` where those lack.
    """
    drawn = traces.stretched()[0] if lengths is None else lengths
    first, later = first_calls()
    loads = [(u, load(u, batch, drawn)) for u in UTILISATIONS] + [(float("inf"), burst(drawn))]
    works: list[Callable[[], Batch | Handled]] = [partial(_batch, d, u, it) for d in DISPATCHES for u, it in loads]
    works += [partial(_handled, d, u, load(u, requests, drawn)) for d in HANDLED for u in UTILISATIONS]
    done: list[Batch | Handled] = []
    for at, work in enumerate(works, start=1):
        done.append(work())
        progress(at, len(works))
    batches = tuple(one for one in done if isinstance(one, Batch))
    return Found(batches, tuple(one for one in done if isinstance(one, Handled)), first, later)


def first_calls() -> tuple[float, float]:
    """Seconds of the first call in a process that has to compile, and in one that finds this on disk."""
    with tempfile.TemporaryDirectory() as kept:
        told = {**os.environ, "NUMBA_CACHE_DIR": kept}
        command = [sys.executable, "-c", FIRST]
        runs = [subprocess.run(command, env=told, capture_output=True, text=True) for _ in range(2)]
    if any(run.returncode for run in runs):
        raise WorkerError(f"the dispatch's first call failed: {runs[0].stderr or runs[1].stderr}")
    return float(runs[0].stdout), float(runs[1].stdout)


def load(utilisation: float, requests: int, lengths: Ints, instances: int = INSTANCES) -> Load:
    """Poisson arrivals whose work, each in its own bin, is `utilisation` of the instances."""
    known, held, share = _deployed(lengths, instances)
    mean = float(share @ [one.alone for one in known.runtimes])
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(mean / (utilisation * instances), requests))
    return Load(known, held, times, rng.choice(lengths, requests))


def burst(lengths: Ints, instances: int = INSTANCES) -> Load:
    """Twice as many requests as instances at one instant."""
    known, held, _ = _deployed(lengths, instances)
    return Load(known, held, np.zeros(2 * instances), np.random.default_rng(0).choice(lengths, 2 * instances))


def _deployed(lengths: Ints, instances: int) -> tuple[Knowledge, tuple[int, ...], Floats]:
    """BERT-base in equal steps, its runtimes by the share [R] of requests in their bins."""
    edges = np.ceil(LONGEST * np.arange(1, RUNTIMES + 1) / RUNTIMES).astype(int)
    share = np.bincount(np.searchsorted(edges, lengths), minlength=RUNTIMES) / len(lengths)
    shapes = (*(Shape(int(edge), 1) for edge in edges), Shape(LONGEST, 1, True))
    seconds = tuple(BERT_BASE.dynamic_seconds(float(edge)) / BERT_BASE.factor for edge in edges)
    known = knowledge_of([replace(published_bins(BERT_BASE), shapes=shapes, seconds=seconds)], "static", "single")
    return known, tuple(start_plan(known, instances, share.tolist())), share


def _batch(dispatch: str, utilisation: float, offered: Load) -> Batch:
    pool, first, best = Pool.of(offered.known, dispatch), offered.first, float("inf")
    for _ in range(REPEATS):
        served = Replay(pool, offered.held, len(first))
        start = time.perf_counter()
        served.serve(offered.times, first)
        best = min(best, time.perf_counter() - start)
    return Batch(dispatch, utilisation, len(first), len(first) / best)


def _handled(dispatch: str, utilisation: float, offered: Load) -> Handled:
    """The repeat of the least mean; the first tenth of the events fills the pool and is not timed."""
    made = offered.requests()
    journal = simulate(_fresh(dispatch, offered), made, SimulatedBins(offered.known, made))
    events = [(entry.event, entry.now) for entry in journal if not isinstance(entry.event, Woke)]  # the plan at its end
    del journal
    runs = [_replayed(dispatch, utilisation, offered, events) for _ in range(REPEATS)]
    return min(runs, key=lambda run: run.mean)


def _fresh(dispatch: str, offered: Load) -> BinsScheduler:
    workers = len(offered.held)
    told = Config(workers, dispatch, period=NO_PLAN, max_waiting=10**6, drop_late=False, deployed=offered.held)
    return BinsScheduler(offered.known, told)


def _replayed(dispatch: str, utilisation: float, offered: Load, events: Sequence[tuple[Event, float]]) -> Handled:
    arrived, ended = _timed(_fresh(dispatch, offered), events)
    kept, ends = (times[times < PREEMPTED] for times in (arrived, ended))
    both = float(kept.mean() + ends.mean() * len(ended) / len(arrived))
    left_out = 1 - len(kept) / len(arrived)
    median, mean = float(np.median(arrived)), float(kept.mean())
    return Handled(dispatch, utilisation, len(arrived), median, mean, left_out, 1 / both)


def _timed(scheduler: BinsScheduler, events: Sequence[tuple[Event, float]]) -> tuple[Floats, Floats]:
    """Seconds of every call of `handle` with an arrival and with an end; the clock's own time is in them."""
    handle, clock, warm = scheduler.handle, time.perf_counter, len(events) // 10
    arrived: list[float] = []
    ended: list[float] = []
    gc.collect()
    gc.freeze()
    for event, now in events[:warm]:
        handle(event, now)
    for event, now in events[warm:]:
        start = clock()
        handle(event, now)
        (arrived if type(event) is Arrived else ended).append(clock() - start)
    gc.unfreeze()
    return np.array(arrived), np.array(ended)
