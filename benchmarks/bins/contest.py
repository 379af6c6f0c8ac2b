"""The study's targets: our default against the published pair, and never worse anywhere.

A job is one trace served by one scheme in the compiled simulator, on the paper's latency facts, with many
devices; jobs run in processes of their own. The first `WARM` seconds are served and not counted, so that every scheme's
plan is one of its own making. Nothing is dropped by anybody, so that mean latencies are over the same requests. Nothing here
is measured on a device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from pliant.benchmarks.bins import traces
from pliant.benchmarks.bins.traces import Trace
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.bins.knowledge import Knowledge, knowledge_of
from pliant.bins.planning import plan as planner
from pliant.bins.planning.plan import Window, start_plan, swaps
from pliant.bins.published import BERT_BASE, BERT_LARGE, LOAD_SECONDS, Published, published_bins
from pliant.bins.replay import Pool, Replay, shared

WARM = 120.0  # seconds
PERIOD = 120.0  # seconds between two plans of a scheme that plans
DENSE = 1.4
Floats = np.typing.NDArray[np.float64]
Setting = tuple[str, str, int, float]
"""Ground, trace, devices, utilisation."""
SWAPS_AT_ONCE = 0.1  # share of the devices


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a pool is run: the runtimes of pliant/bins/knowledge.py and their placement. `plan` "" needs none."""

    name: str
    runtimes: str
    placement: str
    dispatch: str = ""
    plan: str = ""


PAIR = Scheme("published: ILP + Algorithm 1", "static", "single", "published", "published")
SHARED = Scheme("ours (default)", "static", "shared")
SCHEMES = (PAIR, SHARED)


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


FACTS: Mapping[str, Published] = {facts.name: facts for facts in (BERT_BASE, BERT_LARGE)}

TRACES: Mapping[str, Callable[[float, float, int], Trace]] = {
    "stable": traces.stable,
    "bursty": traces.bursty,
    "drifting": lambda rate, seconds, seed: traces.bursty(rate, seconds, seed, drift=True),
}


def serve(job: Job) -> Row:
    """Serve one job. The rate is such that the requests' own work, each in its own bin, is `utilisation` of the devices."""
    bins = published_bins(FACTS[job.ground], traces.stretched()[0])
    scheme = next(scheme for scheme in SCHEMES if scheme.name == job.scheme)
    known = knowledge_of([bins], scheme.runtimes, scheme.placement)
    # The seconds [max length + 1] of a request in the static runtime of its bin.
    timed = zip(bins.shapes, bins.seconds, strict=False)
    edges, seconds = zip(*((shape.length, each) for shape, each in timed if shape.batch == 1), strict=True)
    own = np.asarray(seconds)[np.searchsorted(edges, np.arange(edges[-1] + 1))]
    # A load of just the job's utilisation, however its lengths drifted: made too dense, then thinned.
    mean = float(own[traces.stretched()[0]].mean())
    dense = TRACES[job.trace](DENSE * job.utilisation * job.devices / mean, job.seconds, job.seed)
    offered = float(own[dense.lengths[dense.times >= WARM]].sum()) / (job.seconds - WARM) / job.devices
    kept = np.random.default_rng(job.seed).random(len(dense.times)) < job.utilisation / offered
    trace = Trace(dense.times[kept], dense.lengths[kept], dense.name)
    done = _shared(job, known, trace) if scheme.placement == "shared" else _single(job, scheme, known, trace)
    counted = trace.times >= WARM
    latency = (done - trace.times)[counted]
    late = float((latency > bins.slo).mean())
    return Row(job, len(latency), float(latency.mean()), float(np.quantile(latency, 0.98)), late)


def _shared(job: Job, known: Knowledge, trace: Trace) -> Floats:
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
    cuts = np.arange(0.0, job.seconds + PERIOD, PERIOD)
    edges = np.searchsorted(trace.times, cuts)
    for begin, a, b in zip(cuts, edges, edges[1:], strict=False):
        swapped = (changes, float(begin), max(1, int(SWAPS_AT_ONCE * job.devices)), LOAD_SECONDS)
        done.append(replay.serve(trace.times[a:b], first[a:b], None, *swapped))
        changes = []
        if scheme.plan and b > a:
            window, now = Window(PERIOD, trace.times[a:b], first[a:b]), replay.held.tolist()
            counts = planner.plan(known, window, len(now), scheme.plan, scheme.dispatch, now)
            changes = swaps(now, counts, replay.free_at.tolist())
    return np.concatenate(done)


def jobs_of(setting: Setting, seeds: int, seconds: float) -> list[Job]:
    """Return a job for every scheme, with every seed."""
    return [Job(*setting, seed, seconds, each.name) for seed in range(seeds) for each in SCHEMES]


GROUNDS = ("bert-base", "bert-large")
HEAD = tuple(product(GROUNDS, ("drifting",), (40, 90), (0.5,)))
"""The settings of the first target: bursty, lengths that drift."""
KINDS = ("stable", "bursty", "drifting")
QUICK = (
    *product(GROUNDS, ("stable", "bursty"), (10, 40), (0.5,)),
    *product(GROUNDS[:1], ("stable", "bursty"), (90,), (0.5,)),
    *product(GROUNDS[:1], ("stable", "drifting"), (40,), (0.8,)),
)
FULL = (*product(GROUNDS, KINDS, (10, 40, 90), (0.5, 0.8)), *product(GROUNDS[:1], KINDS, (300, 1000), (0.5,)))
LEAST_GAIN, MOST_LOSS, SEEDS, HEAD_SEEDS = 0.5, 1.03, 3, 9


@dataclass(frozen=True, slots=True)
class Contest:
    rows: tuple[Row, ...]

    def _figures(self, scheme: Scheme, setting: Setting, figure: str) -> Floats:
        """Return a figure by seed."""
        rows = [row for row in self.rows if (row.job.scheme, row.job.setting) == (scheme.name, setting)]
        return np.array([getattr(row, figure) for row in sorted(rows, key=lambda row: row.job.seed)])

    def targets(self) -> list[Target]:
        """Judge the first ones by the median of the seeds, and as before 2026-11-23 by the means over all seeds."""
        settings = list(dict.fromkeys(row.job.setting for row in self.rows if row.job.scheme == PAIR.name))
        targets, more, every = [], [], []
        for setting in settings:
            ours_S, pair_S = (self._figures(scheme, setting, "mean") for scheme in (SHARED, PAIR))
            every.append(float((ours_S / pair_S).max()))
            if setting not in HEAD:
                continue
            late_S, late_pair_S = (self._figures(scheme, setting, "violations") for scheme in (SHARED, PAIR))
            more.append(float(late_S.mean() - late_pair_S.mean()))
            name = f"bursty, drifting, {setting[0]}, {setting[2]} devices: mean latency over the published pair's"
            by_seed = f"{name}, median of {len(pair_S)} seeds (worst {every[-1]:.2f}x)"
            targets.append(Target(by_seed, float(np.median(ours_S / pair_S)), "<=", 1 - LEAST_GAIN, "x"))
            targets.append(Target(f"{name}, all seeds", ours_S.mean() / pair_S.mean(), "<=", 1 - LEAST_GAIN, "x"))
        return [
            *targets,
            Target("the same: SLO violations beyond the published pair's", 100 * max(more), "<=", 0, "%"),
            Target("settings compared, at least 3 seeds each", len(every), ">=", 12),
            Target("mean latency over the published pair's, worst setting and seed", max(every), "<=", MOST_LOSS, "x"),
        ]


def contest(context: Context) -> Measured:
    """Compare; in the smallest setting in the first setting of the first target."""
    need(traces.missing())
    with context.stage("simulations of all schemes") as progress:
        jobs = jobs_of(HEAD[0], HEAD_SEEDS, WARM + 90.0) if context.smallest else _jobs(context.full)
        result = Contest(tuple(run_all(serve, jobs, min(os.cpu_count() or 1, 4), progress)))
    rows = [
        {"setting": "-".join(map(str, row.job.setting)), "seed": row.job.seed, "scheme": row.job.scheme}
        | {name: getattr(row, name) for name in ("requests", "mean", "p98", "violations")}
        for row in result.rows
    ]
    return result.targets(), {"rows": rows}


def _jobs(full: bool) -> list[Job]:
    """Return what both schemes are given; large pools for a shorter while, which tells as much."""
    jobs = list[Job]()
    for setting in dict.fromkeys([*HEAD, *(FULL if full else QUICK)]):
        seconds = WARM + (60.0 if setting[2] > 90 else 360.0 if full else 90.0)
        jobs += jobs_of(setting, HEAD_SEEDS if setting in HEAD else SEEDS, seconds)
    return jobs
