"""All schemes on the same traces in the compiled simulator: the paper's latency facts or a measured profile, many devices.

A job is one trace served by one scheme; jobs run in processes of their own. The first `WARM` seconds are served and not
counted, so that every scheme's plan is one of its own making. Nothing is dropped by anybody, so that mean latencies are over
the same requests. Nothing here is measured on a device but the profile of the ground "measured".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pliant.benchmarks.bins import traces
from pliant.benchmarks.bins.published import BERT_BASE, BERT_LARGE, EDGES, Published
from pliant.benchmarks.bins.traces import Trace
from pliant.bins.artifact import Bins, Shape
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning import plan as planner
from pliant.bins.planning.plan import Window, start_plan, swaps
from pliant.bins.replay import Pool, Replay, shared
from pliant.latency import LatencyTable

WARM = 120.0  # seconds
DENSE = 1.4
Floats = np.typing.NDArray[np.float64]
Setting = tuple[str, str, int, float]
"""Ground, trace, devices, utilisation."""
SWAPS_AT_ONCE = 0.1  # share of the devices
LOAD_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a pool is run. `plan` "" needs none;"""

    name: str
    runtimes: str  # see pliant/bins/knowledge.py
    placement: str
    dispatch: str = ""
    plan: str = ""
    period: float = 120.0


PAIR = Scheme("published: ILP + Algorithm 1", "static", "single", "published", "published")
SINGLE = Scheme("ours, one runtime a device", "static", "single", "completion", "better", Config().period)
SHARED = Scheme("ours (default)", "static", "shared")
SCHEMES = (PAIR, SINGLE, SHARED)


@dataclass(frozen=True, slots=True)
class Job:
    ground: str
    trace: str  # stable, bursty or drifting
    devices: int
    utilisation: float
    seed: int
    seconds: float  # of the trace, the warm ones included
    scheme: str

    @property
    def setting(self) -> Setting:
        return self.ground, self.trace, self.devices, self.utilisation


@dataclass(frozen=True, slots=True)
class Row:
    """Latencies in seconds; `violations`: share of all requests answered after the SLO."""

    job: Job
    requests: int
    mean: float
    p98: float
    violations: float
    least: float  # mean seconds of service, each request in its own bin


def published_bins(facts: Published) -> Bins:
    """Return the paper's facts as an artifact: eight static runtimes of batch 1, the dynamic one, the recorded lengths.

    Without the recorded traces every length is as frequent.
    """
    lengths = (20, *EDGES)
    table = LatencyTable(lengths, (1,), tuple((facts.dynamic_seconds(length),) for length in lengths))
    shapes = tuple(Shape(edge, 1) for edge in EDGES)
    seconds = tuple(facts.seconds(edge) for edge in EDGES)
    recorded = np.arange(1, EDGES[-1] + 1) if traces.missing() else traces.stretched()[0]
    observed = np.bincount(recorded, minlength=EDGES[-1] + 1)
    device, shapes = "RTX 3090 as published", (*shapes, Shape(EDGES[-1], 1, True))
    runtimes = device, "graphs", facts.slo, shapes, seconds, table
    return Bins(facts.name, "", *runtimes, observed, LOAD_SECONDS, "single", {}, {})


GROUNDS: Mapping[str, Published] = {facts.name: facts for facts in (BERT_BASE, BERT_LARGE)}

TRACES: Mapping[str, Callable[[float, float, int], Trace]] = {
    "stable": traces.stable,
    "bursty": traces.bursty,
    "drifting": lambda rate, seconds, seed: traces.bursty(rate, seconds, seed, drift=True),
}


def serve(job: Job, bins: Bins | None = None) -> Row:
    """Serve one job. The rate is such that the requests' own work, each in its own bin, is `utilisation` of the devices."""
    bins = bins or published_bins(GROUNDS[job.ground])
    scheme = next(scheme for scheme in SCHEMES if scheme.name == job.scheme)
    known = knowledge_of([bins], scheme.runtimes, scheme.placement)
    own = _own_seconds(bins)
    trace = _trace(job, own)
    done = (_shared if scheme.placement == "shared" else _single)(job, scheme, known, trace)
    counted = trace.times >= WARM
    latency = (done - trace.times)[counted]
    figures = (float(latency.mean()), float(np.quantile(latency, 0.98)), float((latency > bins.slo).mean()))
    return Row(job, len(latency), *figures, float(own[trace.lengths[counted]].mean()))


def _trace(job: Job, own: Floats) -> Trace:
    """Return a load of just the job's utilisation, however its lengths drifted: made too dense, then thinned."""
    mean = float(own[traces.stretched()[0]].mean())
    dense = TRACES[job.trace](DENSE * job.utilisation * job.devices / mean, job.seconds, job.seed)
    counted = dense.times >= WARM
    offered = float(own[dense.lengths[counted]].sum()) / (job.seconds - WARM) / job.devices
    kept = np.random.default_rng(job.seed).random(len(dense.times)) < job.utilisation / offered
    return Trace(dense.times[kept], dense.lengths[kept], dense.name)


def _own_seconds(bins: Bins) -> Floats:
    """Return [max length + 1], the seconds of a request in the static runtime of its bin."""
    timed = zip(bins.shapes, bins.seconds, strict=False)
    alone = [(shape.length, seconds) for shape, seconds in timed if shape.batch == 1]
    edges, seconds = zip(*alone, strict=True)
    at = np.searchsorted(edges, np.arange(edges[-1] + 1))
    return np.asarray(seconds)[at]


def _shared(job: Job, _scheme: Scheme, known: Knowledge, trace: Trace) -> Floats:
    (stream,) = known.streams
    seconds = np.array([stream.cost(max(length, 1))[1] for length in range(stream.max_length + 1)])[trace.lengths]
    patience = np.full(len(seconds), stream.slo / stream.mean_seconds)
    until = trace.times + stream.slo  # nobody needs time for a way back here
    return shared(trace.times, seconds, patience, until, job.devices)


def _single(job: Job, scheme: Scheme, known: Knowledge, trace: Trace) -> Floats:
    """Serve period by period, with a plan between two of them."""
    lengths = [runtime.length for runtime in known.runtimes]
    first = np.searchsorted(lengths, trace.lengths).astype(np.int64)
    shares = np.bincount(np.searchsorted(lengths, traces.stretched()[0]), minlength=len(lengths))
    held = start_plan(known, job.devices, (shares / shares.sum()).tolist())
    replay = Replay(Pool.of(known, scheme.dispatch), held, len(first))
    done: list[Floats] = []
    changes: list[tuple[int, int]] = []
    cuts = np.arange(0.0, job.seconds + scheme.period, scheme.period)
    edges = np.searchsorted(trace.times, cuts)
    for begin, a, b in zip(cuts, edges, edges[1:], strict=False):
        swapped = (changes, float(begin), max(1, int(SWAPS_AT_ONCE * job.devices)), LOAD_SECONDS)
        done.append(replay.serve(trace.times[a:b], first[a:b], None, *swapped))
        changes = _changes(scheme, known, Window(scheme.period, trace.times[a:b], first[a:b]), replay)
    return np.concatenate(done)


def _changes(scheme: Scheme, known: Knowledge, window: Window, replay: Replay) -> list[tuple[int, int]]:
    """Return which devices swap to what, as the scheme plans from the window."""
    if not scheme.plan or not len(window.times):
        return []
    held = replay.held.tolist()
    counts = planner.plan(known, window, len(held), scheme.plan, scheme.dispatch, held)
    return swaps(held, counts, replay.free_at.tolist())


def jobs(settings: Sequence[Setting], seeds: int, seconds: float, schemes: Sequence[Scheme]) -> list[Job]:
    """Return a job for every scheme in every setting, with every seed."""
    return [
        Job(*setting, seed, seconds, scheme.name) for setting in settings for seed in range(seeds) for scheme in schemes
    ]


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows for the results' file."""
    return [
        {"setting": "-".join(map(str, row.job.setting)), "seed": row.job.seed, "scheme": row.job.scheme}
        | {name: getattr(row, name) for name in ("requests", "mean", "p98", "violations", "least")}
        for row in rows
    ]
