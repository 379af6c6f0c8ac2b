"""Two models of different SLOs on one pool of devices, or on two pools of the best fixed sizes, in the compiled simulator.

BERT-base (150 ms) and BERT-large (450 ms) by the paper's facts, each half of the work, each with Twitter-bursty arrivals of
its own. The division into two pools is the best in hindsight: of all that leave each pool more than its work, the one of
least mean latency over both on this very trace. Where a device holds one runtime a plan is made each period, for both
models at once on one pool. Nothing is dropped; the first `WARM` seconds are served and not counted. Nothing here was
measured on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bins import traces
from benchmarks.bins.published import BERT_BASE, BERT_LARGE
from benchmarks.bins.study import published_bins
from pliant.bins.artifact import Bins
from pliant.bins.knowledge import Config, Knowledge, Stream, knowledge_of
from pliant.bins.planning import plan as planner
from pliant.bins.planning.plan import Window, start_plan, swaps
from pliant.bins.replay import Pool, Replay, shared
from pliant.progress import Progress, silent

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PLACEMENTS = ("shared", "single")
WARM = 60.0  # seconds
ROOM = 1.05  # a pool's devices over its work, at least
HEAD = ("placement", "pools", "utilisation", "devices", "mean ms", "base ms", "large ms", "over the SLO")


@dataclass(frozen=True, slots=True)
class StreamsConfig:
    devices: int = 40
    seconds: float = 180.0
    utilisations: tuple[float, ...] = (0.5, 0.7)
    seeds: int = 1


QUICK = StreamsConfig()
FULL = StreamsConfig(seconds=300.0, seeds=3)


@dataclass(frozen=True, slots=True)
class Row:
    """`devices`: of each pool. `means`: seconds by stream; `mean`: over all requests. `violations`: of both SLOs."""

    placement: str
    utilisation: float
    seed: int
    devices: tuple[int, ...]
    mean: float
    means: tuple[float, ...]
    violations: float


@dataclass(frozen=True)
class Found:
    config: StreamsConfig
    rows: tuple[Row, ...]

    def table(self) -> list[tuple[str, ...]]:
        """Cells under HEAD: means over seeds."""
        keys = dict.fromkeys((row.placement, row.utilisation, len(row.devices)) for row in self.rows)
        return [_line([r for r in self.rows if (r.placement, r.utilisation, len(r.devices)) == key]) for key in keys]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def _line(rows: Sequence[Row]) -> tuple[str, ...]:
    figures = [(1e3 * row.mean, 1e3 * row.means[0], 1e3 * row.means[1], row.violations) for row in rows]
    mean, base, large, violations = np.mean(figures, axis=0)
    pools = {1: "one", 2: "two, best division"}[len(rows[0].devices)]
    sizes = " ".join(dict.fromkeys("+".join(map(str, row.devices)) for row in rows))
    told = rows[0].placement, pools, f"{rows[0].utilisation:g}", sizes
    return *told, f"{mean:.2f}", f"{base:.2f}", f"{large:.2f}", f"{violations:.2%}"


@dataclass(frozen=True)
class Load:
    """Requests of all streams in order. `streams` [n]: index of each one's."""

    times: Floats
    lengths: Ints
    streams: Ints

    def only(self, stream: int) -> Load:
        mine = self.streams == stream
        return Load(self.times[mine], self.lengths[mine], np.zeros(int(mine.sum()), np.int64))


def measure(config: StreamsConfig = QUICK, progress: Progress = silent) -> Found:
    """Raises `InputError` where the recorded traces are missing."""
    bins = [published_bins(BERT_BASE), published_bins(BERT_LARGE)]
    works = [(s, u, p) for s in range(config.seeds) for u in config.utilisations for p in PLACEMENTS]
    rows: list[Row] = []
    for at, (seed, utilisation, placement) in enumerate(works, start=1):
        offered = load(bins, utilisation, config, seed)
        rows.append(Row(placement, utilisation, seed, (config.devices,), *_together(bins, placement, offered, config)))
        rows.append(_apart(bins, placement, offered, utilisation, config, seed))
        progress(at, len(works))
    return Found(config, tuple(rows))


def load(bins: Sequence[Bins], utilisation: float, config: StreamsConfig, seed: int) -> Load:
    """Each stream's work is an equal share of `utilisation` of the devices."""
    parts = []
    for number, one in enumerate(bins):
        (stream,) = knowledge_of([one], "static").streams
        mean = float(own_seconds(stream)[traces.stretched()[0]].mean())
        rate = utilisation * config.devices / len(bins) / mean
        parts.append(traces.bursty(rate, config.seconds, len(bins) * seed + number))
    times = np.concatenate([part.times for part in parts])
    which = np.repeat(np.arange(len(parts)), [len(part.times) for part in parts])
    order = np.argsort(times, kind="stable")
    return Load(times[order], np.concatenate([part.lengths for part in parts])[order].astype(np.int64), which[order])


def own_seconds(stream: Stream) -> Floats:
    """[max length + 1] seconds of a request alone, by its length."""
    return np.array([stream.cost(max(length, 1))[1] for length in range(stream.max_length + 1)])


def _together(bins: Sequence[Bins], placement: str, offered: Load, config: StreamsConfig) -> tuple[Any, ...]:
    latency = served(bins, placement, offered, config.devices)
    return _figures(bins, offered, latency)


def _apart(
    bins: Sequence[Bins], placement: str, offered: Load, utilisation: float, config: StreamsConfig, seed: int
) -> Row:
    """Two pools, divided in the best of all ways."""
    rows = []
    for sizes in divisions(config.devices, utilisation):
        latency = np.empty(len(offered.times))
        for number, (one, size) in enumerate(zip(bins, sizes, strict=True)):
            latency[offered.streams == number] = served([one], placement, offered.only(number), size)
        rows.append(Row(placement, utilisation, seed, sizes, *_figures(bins, offered, latency)))
    return min(rows, key=lambda row: row.mean)


def divisions(devices: int, utilisation: float) -> Iterator[tuple[int, int]]:
    """Sizes of two pools that each exceed the half of the work."""
    least = int(np.ceil(ROOM * utilisation * devices / 2))
    return ((first, devices - first) for first in range(least, devices - least + 1))


def _figures(bins: Sequence[Bins], offered: Load, latency: Floats) -> tuple[float, tuple[float, ...], float]:
    counted = offered.times >= WARM
    means = tuple(float(latency[counted & (offered.streams == number)].mean()) for number in range(len(bins)))
    slo = np.array([one.slo for one in bins])[offered.streams]
    return float(latency[counted].mean()), means, float(np.mean((latency > slo)[counted]))


def served(bins: Sequence[Bins], placement: str, offered: Load, devices: int) -> Floats:
    """[n] seconds from arrival to answer on one pool, by our scheduler's default for the placement."""
    known = knowledge_of(bins, "static", placement)
    done = (_shared if placement == "shared" else _single)(known, offered, devices)
    return done - offered.times


def _shared(known: Knowledge, offered: Load, devices: int) -> Floats:
    seconds = np.stack([own_seconds(stream) for stream in known.streams])[offered.streams, offered.lengths]
    slo = np.array([stream.slo for stream in known.streams])
    patience = slo * len(slo) / sum(stream.mean_seconds for stream in known.streams)
    until = offered.times + (1 - Config().margin) * slo[offered.streams]
    return shared(offered.times, seconds, patience[offered.streams], until, devices)


def _single(known: Knowledge, offered: Load, devices: int) -> Floats:
    """Served period by period, with a plan between two of them."""
    config, first = Config(), _first(known, offered)
    share = np.bincount(first[offered.times < config.period], minlength=len(known.runtimes))
    replay = Replay(
        Pool.of(known, config.dispatch), start_plan(known, devices, (share / share.sum()).tolist()), len(first)
    )
    cuts = np.arange(0.0, offered.times[-1] + config.period, config.period)
    edges = np.searchsorted(offered.times, cuts)
    done, changes = [], list[tuple[int, int]]()
    for begin, a, b in zip(cuts, edges, edges[1:], strict=False):
        told = (changes, float(begin), max(1, int(config.swaps * devices)), known.load_seconds)
        done.append(replay.serve(offered.times[a:b], first[a:b], None, *told))
        window = Window(config.period, offered.times[a:b].tolist(), first[a:b].tolist())
        held = replay.held.tolist()
        counts = planner.plan(known, window, devices, config.plan, config.dispatch, held)
        changes = swaps(held, counts, replay.free_at.tolist())
    return np.concatenate(done)


def _first(known: Knowledge, offered: Load) -> Ints:
    """[n] the shortest runtime with sufficient length."""
    found = np.zeros(len(offered.times), np.int64)
    for number, stream in enumerate(known.streams):
        mine = offered.streams == number
        found[mine] = stream.first + np.searchsorted([one.length for one in stream.runtimes], offered.lengths[mine])
    return found
