"""How many requests a second are dispatched to 1,200 instances of 12 runtimes: in batch by compiled code, or one by one.

In batch: `Replay.serve` on Poisson arrivals, which besides the decisions keeps the books of all that is served. One by one:
a journal of the scheduler is made in virtual time and its events are given to a fresh scheduler again; what is timed are its
calls of `handle` with an arrival, each one decision with its launch. A call of more than `PREEMPTED` seconds was interrupted
(by another program: no path of the scheduler takes that long without a plan, and no plan falls into it) and is left out.
The garbage collector runs, but not over the journal. One thread.

Besides: how many requests a second of a core the scheduler sees through, from arrival to answer, with the same load on each
of few devices and of many (`serve`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pliant.benchmarks.bins import traces
from pliant.benchmarks.bins.published import BERT_BASE, LONGEST, published_bins
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import seconds_of
from pliant.bins.artifact import Shape
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.replay import Pool, Replay
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.progress import Progress, silent
from pliant.protocol import Arrived, Request, Woke
from pliant.simulator import simulate

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

INSTANCES, RUNTIMES = 1200, 12
UTILISATIONS = (0.5, 0.8)
BATCH, HANDLE = "batch", "handle"
HANDLED = ("completion", "published")  # dispatches that are timed one by one
LIMITS = {BATCH: 1e6, HANDLE: 150e3}  # decisions/s
REPEATS = 3
PREEMPTED = 1e-3  # seconds
NO_PLAN = 1000.0  # seconds between plans: longer than any trace here
FEW, MANY = 8, 1000  # devices
LEAST_SHARE = 0.6  # of the requests a second of a core that few devices allow, with many


@dataclass(frozen=True, slots=True)
class Rate:
    """Decisions timed `how`, BATCH or HANDLE; the best of the repeats."""

    how: str
    dispatch: str
    utilisation: float
    decisions: int
    per_second: float


@dataclass(frozen=True, slots=True)
class Served:
    """Requests that a scheduler of these devices saw through, each second of its processor time; the best repeat."""

    placement: str
    devices: int
    requests: int
    per_second: float


def dispatch(context: Context) -> Measured:
    """Judge the worst policy at the worst utilisation, INFaaS's among them, and the rate with many devices over few."""
    need(traces.missing())
    with context.stage("dispatch") as progress:
        rates = measure(progress)
    targets = []
    for how, limit in LIMITS.items():
        worst = min(rate.per_second for rate in rates if rate.how == how)
        name = f"dispatch {'in' if how == BATCH else 'by'} {how}, {INSTANCES} instances, {RUNTIMES} runtimes"
        targets.append(Target(name, worst, ">=", limit, "decisions/s"))
    served: list[Served] = []
    if not context.smallest:
        with context.stage("few devices and many") as progress:
            served = serve(progress)
    details = {"rates": [asdict(rate) for rate in rates], "served": [asdict(rate) for rate in served]}
    return targets + many_over_few(served), details | {"preempted_seconds": PREEMPTED}


def many_over_few(served: Sequence[Served]) -> list[Target]:
    """Judge, for each placement, the rate with the most devices over the rate with the fewest."""
    targets = []
    for placement in dict.fromkeys(rate.placement for rate in served):
        by_devices = {rate.devices: rate.per_second for rate in served if rate.placement == placement}
        few, many = min(by_devices), max(by_devices)
        name = f"requests/s a core, {many} devices over {few}, placement {placement}"
        targets.append(Target(name, by_devices[many] / by_devices[few], ">=", LEAST_SHARE, "x"))
    return targets


@dataclass(frozen=True)
class Load:
    """Requests on a pool that is deployed for them."""

    known: Knowledge
    held: tuple[int, ...]
    times: Floats
    lengths: Ints

    @property
    def first(self) -> Ints:
        """Return [n], the shortest runtime with sufficient length."""
        edges = [runtime.length for runtime in self.known.runtimes]
        return np.searchsorted(edges, self.lengths).astype(np.int64)

    def requests(self) -> list[Request]:
        name, slo = self.known.streams[0].name, self.known.streams[0].slo
        arrivals = zip(self.times.tolist(), self.lengths.tolist(), strict=True)
        return [Request(i, at, at + slo, name, 1.0, length) for i, (at, length) in enumerate(arrivals)]


def measure(
    progress: Progress = silent, requests: int = 60_000, batch: int = 500_000, lengths: Ints | None = None
) -> list[Rate]:
    """Time `requests` by handle and `batch` in batch, for each policy and utilisation; half a minute.

    `lengths` of requests are drawn from these; without them from the recorded ones. Raises `InputError` where those lack.
    """
    drawn = traces.stretched()[0] if lengths is None else lengths
    offered = {utilisation: load(utilisation, batch, drawn) for utilisation in UTILISATIONS}
    works: list[Callable[[], Rate]] = [partial(_batch, d, u, offered[u]) for d in DISPATCHES for u in UTILISATIONS]
    works += [partial(_handled, d, u, load(u, requests, drawn)) for d in HANDLED for u in UTILISATIONS]
    rates: list[Rate] = []
    for work in works:
        rates.append(work())
        progress(len(rates), len(works))
    return rates


def serve(
    progress: Progress = silent,
    requests: int = 20_000,
    devices: Sequence[int] = (FEW, MANY),
    lengths: Ints | None = None,
) -> list[Served]:
    """Time the scheduler's part of `requests` on each number of `devices`, in both placements, as `measure` does."""
    drawn = traces.stretched()[0] if lengths is None else lengths
    cases = [(placement, count) for placement in ("shared", "single") for count in devices]
    rates: list[Served] = []
    for placement, count in cases:
        rates.append(_served(placement, count, load(UTILISATIONS[0], requests, drawn, count, placement)))
        progress(len(rates), len(cases))
    return rates


def _served(placement: str, devices: int, offered: Load) -> Served:
    """Replay a whole journal, and ask when to wake after every event, as a driver does."""
    requests = offered.requests()
    journal = simulate(_fresh(HANDLED[0], offered), requests, SimulatedBins(offered.known, requests))
    last = max(at for at, entry in enumerate(journal) if not isinstance(entry.event, Woke))  # then there is a plan
    events = [(entry.event, entry.now) for entry in journal[: last + 1]]
    del journal
    seconds = []
    for _ in range(REPEATS):
        scheduler = _fresh(HANDLED[0], offered)
        gc.collect()
        gc.freeze()
        start = time.process_time()
        for event, now in events:
            scheduler.handle(event, now)
            scheduler.wake_at()
        seconds.append(time.process_time() - start)
        gc.unfreeze()
    return Served(placement, devices, len(requests), len(requests) / min(seconds))


def load(
    utilisation: float, requests: int, lengths: Ints, instances: int = INSTANCES, placement: str = "single"
) -> Load:
    """Draw Poisson arrivals whose work, each in its own bin, is `utilisation` of the instances.

    The runtimes are BERT-base's in equal steps, deployed by the share [R] of requests in their bins.
    """
    edges = np.ceil(LONGEST * np.arange(1, RUNTIMES + 1) / RUNTIMES).astype(int)
    share = np.bincount(np.searchsorted(edges, lengths), minlength=RUNTIMES) / len(lengths)
    shapes = (*(Shape(int(edge), 1) for edge in edges), Shape(LONGEST, 1, True))
    seconds = tuple(BERT_BASE.dynamic_seconds(float(edge)) / BERT_BASE.factor for edge in edges)
    known = knowledge_of([replace(published_bins(BERT_BASE), shapes=shapes, seconds=seconds)], "static", placement)
    held, mean = tuple(start_plan(known, instances, share.tolist())), float(share @ [r.alone for r in known.runtimes])
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.exponential(mean / (utilisation * instances), requests))
    return Load(known, held, times, rng.choice(lengths, requests))


def _batch(dispatch: str, utilisation: float, offered: Load) -> Rate:
    pool, first = Pool.of(offered.known, dispatch), offered.first
    replays = [Replay(pool, offered.held, len(first)) for _ in range(REPEATS)]
    best = min(seconds_of(partial(replay.serve, offered.times, first)) for replay in replays)
    return Rate(BATCH, dispatch, utilisation, len(first), len(first) / best)


def _handled(dispatch: str, utilisation: float, offered: Load) -> Rate:
    """Time every call of `handle` with an arrival, the clock's own time within; return the repeat of the least mean.

    The first tenth of the events fills the pool and is not timed.
    """
    requests = offered.requests()
    journal = simulate(_fresh(dispatch, offered), requests, SimulatedBins(offered.known, requests))
    events = [(entry.event, entry.now) for entry in journal if not isinstance(entry.event, Woke)]  # the plan at its end
    del journal
    repeats = []
    for _ in range(REPEATS):
        handle, clock, warm = _fresh(dispatch, offered).handle, time.perf_counter, len(events) // 10
        seconds: list[float] = []
        gc.collect()
        gc.freeze()
        for number, (event, now) in enumerate(events):
            start = clock()
            handle(event, now)
            if number >= warm and type(event) is Arrived:
                seconds.append(clock() - start)
        gc.unfreeze()
        repeats.append(np.array(seconds))
    mean = min(float(seconds[seconds < PREEMPTED].mean()) for seconds in repeats)
    return Rate(HANDLE, dispatch, utilisation, len(repeats[0]), 1 / mean)


def _fresh(dispatch: str, offered: Load) -> BinsScheduler:
    workers = len(offered.held)
    config = Config(workers, dispatch, period=NO_PLAN, max_waiting=10**6, drop_late=False, deployed=offered.held)
    return BinsScheduler(offered.known, config)
