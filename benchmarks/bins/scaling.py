"""How many devices a load takes under autoscaling: every scheme with the published rule, in the simulator.

BERT-large by the paper's facts (`bins_published`), on a device `slower` times as slow where that makes the trace shorter to
simulate; the SLO stays. The load: Twitter-bursty, thinned by a raised cosine, from as much work as keeps `low` devices busy
to as much as keeps `high` busy if each request ran in its own bin. Before it come a few requests a second until every scheme
is down to the least number of devices; they and the first `SETTLED` seconds of the load are not counted. Nothing is
dropped. A device counts as in use from the decision to use it to the decision to let it go, so while it loads, not while
it works off its queue. Nothing here was measured on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bins import traces
from benchmarks.bins.published import BERT_LARGE, EDGES
from benchmarks.bins.study import DT, PAIR, SHARED, SINGLE, ST, Scheme, published_bins
from benchmarks.bins.traces import Trace
from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, Scaling, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.progress import Progress, silent
from pliant.protocol import JournalEntry, Request, Woke
from pliant.report import observations
from pliant.simulator import simulate

Floats = NDArray[np.float64]

COMPARED = (SHARED, SINGLE, PAIR, DT, ST)
PUBLISHED = (5.49, 6.38, 6.80, 8.13)  # the paper's devices, Arlo's first, on its own trace
TRICKLE = 2.0  # requests/s before the load
SETTLED = 60.0  # seconds
ONE_LESS = 65.0  # seconds in which the rule lets one device go at the latest
HEAD = ("scheme", "devices", "mean ms", "p98 ms", "over the SLO", "least to most")


@dataclass(frozen=True, slots=True)
class ScalingConfig:
    """`low` and `high`: devices' worth of work at the quietest and the busiest; `most`: devices there are."""

    slower: float = 4.0
    seconds: float = 600.0
    cycles: int = 1
    low: float = 2.0
    high: float = 8.0
    least: int = 2
    most: int = 48
    seeds: int = 1


QUICK = ScalingConfig()
FULL = ScalingConfig(seconds=2400.0, seeds=3)


@dataclass(frozen=True, slots=True)
class Row:
    """Latencies in seconds. `devices`: mean over time; `violations`: share of requests answered after the SLO."""

    scheme: str
    seed: int
    requests: int
    devices: float
    mean: float
    p98: float
    violations: float
    least: int
    most: int


@dataclass(frozen=True)
class Found:
    config: ScalingConfig
    rows: tuple[Row, ...]

    def table(self) -> list[tuple[str, ...]]:
        """Cells under HEAD: means over seeds."""
        return [_line(scheme.name, [row for row in self.rows if row.scheme == scheme.name]) for scheme in COMPARED]

    def devices(self, scheme: Scheme) -> float:
        """Over time, mean of all seeds."""
        return float(np.mean([row.devices for row in self.rows if row.scheme == scheme.name]))

    def plain(self) -> dict[str, Any]:
        return {"config": asdict(self.config), "rows": [asdict(row) for row in self.rows], "paper": PUBLISHED}


def _line(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    figures = [(row.devices, 1e3 * row.mean, 1e3 * row.p98, row.violations) for row in rows]
    devices, mean, p98, violations = np.mean(figures, axis=0)
    span = f"{min(row.least for row in rows)} to {max(row.most for row in rows)}"
    return name, f"{devices:.2f}", f"{mean:.1f}", f"{p98:.1f}", f"{violations:.2%}", span


def measure(config: ScalingConfig = QUICK, progress: Progress = silent) -> Found:
    """Every scheme on every seed's trace. Raises `InputError` where the recorded traces are missing."""
    bins, rows = ground(config), []
    for seed in range(config.seeds):
        trace, start = load(bins, config, seed)
        for scheme in COMPARED:
            rows.append(serve(scheme, bins, trace, start, config, seed))
            progress(len(rows), config.seeds * len(COMPARED))
    return Found(config, tuple(rows))


def ground(config: ScalingConfig) -> Bins:
    """BERT-large on the slower device."""
    return published_bins(replace(BERT_LARGE, longest=BERT_LARGE.longest * config.slower))


def load(bins: Bins, config: ScalingConfig, seed: int) -> tuple[Trace, float]:
    """The trickle and the load, and when the load begins."""
    rng = np.random.default_rng(seed)
    start = (config.most - config.least + 1) * ONE_LESS
    mean = float(np.mean(np.array(bins.seconds)[np.searchsorted(EDGES, traces.stretched()[0])]))
    made = traces.bursty(config.high / mean, config.seconds, seed)
    kept = rng.random(len(made.times)) < wave(made.times, config) / config.high
    trickle = traces.stable(TRICKLE, start, seed)
    times = np.concatenate([trickle.times, start + made.times[kept]])
    return Trace(times, np.concatenate([trickle.lengths, made.lengths[kept]]), f"{made.name}-waves"), start


def wave(times: Floats, config: ScalingConfig) -> Floats:
    """Devices' worth of work at these seconds of the load: `low` at both ends, `high` between, so often as `cycles`."""
    share = 0.5 - 0.5 * np.cos(2 * np.pi * config.cycles * times / config.seconds)
    found: Floats = config.low + (config.high - config.low) * share
    return found


def serve(scheme: Scheme, bins: Bins, trace: Trace, start: float, config: ScalingConfig, seed: int) -> Row:
    """One scheme under the rule."""
    known = knowledge_of([bins], scheme.runtimes, scheme.placement)
    told = Config(
        config.most, scheme.dispatch or "completion", scheme.plan or "published", scheme.period, drop_late=False,
        max_waiting=10**6, scaling=Scaling(least=config.least),
    )  # fmt: skip
    scheduler = BinsScheduler(known, told)
    steps: list[tuple[float, int]] = []

    def observe(entry: JournalEntry) -> None:
        if isinstance(entry.event, Woke):  # nothing else changes it
            steps.append((entry.now, scheduler.active))

    asked = _requests(trace, bins)
    journal = simulate(scheduler, asked, SimulatedBins(known, asked), observe)
    ends = {one.request.id: one.answered for one in observations(journal)}
    latency = np.array([(ends[one.id] or np.inf) - one.arrival for one in asked])[trace.times >= start + SETTLED]
    figures = float(latency.mean()), float(np.quantile(latency, 0.98)), float(np.mean(latency > bins.slo))
    mean, least, most = in_use(steps, start + SETTLED, start + config.seconds)
    return Row(scheme.name, seed, len(latency), mean, *figures, least, most)


def in_use(steps: Sequence[tuple[float, int]], begin: float, end: float) -> tuple[float, int, int]:
    """Mean over time, least and most from `begin` to `end`. `steps`: (since when, devices), in order, the first before."""
    since, devices = np.array([at for at, _ in steps]), np.array([count for _, count in steps])
    seconds = np.diff(np.append(np.clip(since, begin, end), end))
    seen = devices[seconds > 0]
    return float(seconds @ devices / (end - begin)), int(seen.min()), int(seen.max())


def _requests(trace: Trace, bins: Bins) -> list[Request]:
    told = zip(trace.times.tolist(), trace.lengths.tolist(), strict=True)
    return [Request(i, at, at + bins.slo, bins.name, 1.0, length) for i, (at, length) in enumerate(told)]
