"""Batch sizes beyond 1, chosen by load: the scheduler with and without them, in the simulator, under both placements.

Without a profile the ground is stated, not measured: the paper's facts of BERT-base, which lie on a line in the number of
tokens, are taken to hold for the tokens of a batch as well. So a batch saves what does not grow with tokens, 0.62 ms a text:
1.9x the texts per second at 64 tokens and 8 texts, 1.1x at 512. With a measured profile its own shapes and seconds
count. Twitter-stable arrivals; utilisation 1 is what the devices bear one text at a time, each in its own bin, so that
beyond it only batches can help. Nothing is dropped. Under placement "single" every device keeps the runtime that a plan gave
it which was made on a trace of the same rate and of another seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from benchmarks.bins import traces
from benchmarks.bins.published import BERT_BASE, EDGES, STEP, Published
from benchmarks.bins.study import published_bins
from benchmarks.bins.traces import Trace
from pliant.bins.artifact import Bins, Shape
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import Window, plan, start_plan
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import InputError
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import observations
from pliant.simulator import simulate

LADDERS = ((1,), (1, 2, 4, 8))
PLACEMENTS = ("shared", "single")
NO_PLAN = 1e6  # seconds between plans
OTHER = 1000  # added to a seed
HEAD = ("placement", "utilisation", "batches", "mean ms", "p98 ms", "over the SLO", "texts a launch")


@dataclass(frozen=True, slots=True)
class BatchesConfig:
    devices: int = 8
    seconds: float = 10.0
    utilisations: tuple[float, ...] = (0.3, 0.7, 1.0, 1.3)
    seeds: int = 1


QUICK = BatchesConfig()
FULL = BatchesConfig(seconds=60.0, seeds=3)


@dataclass(frozen=True, slots=True)
class Row:
    """Latencies in seconds. `violations`: share of requests answered after the SLO; `batch`: mean texts of a launch."""

    placement: str
    utilisation: float
    ladder: tuple[int, ...]
    seed: int
    requests: int
    mean: float
    p98: float
    violations: float
    batch: float


@dataclass(frozen=True)
class Found:
    profile: str
    config: BatchesConfig
    rows: tuple[Row, ...]

    def table(self) -> list[tuple[str, ...]]:
        """Cells under HEAD: means over seeds."""
        keys = dict.fromkeys((row.placement, row.utilisation, row.ladder) for row in self.rows)
        return [_line([r for r in self.rows if (r.placement, r.utilisation, r.ladder) == key]) for key in keys]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def _line(rows: Sequence[Row]) -> tuple[str, ...]:
    figures = [(1e3 * row.mean, 1e3 * row.p98, row.violations, row.batch) for row in rows]
    mean, p98, violations, batch = np.mean(figures, axis=0)
    ladder = ", ".join(map(str, rows[0].ladder))
    told = rows[0].placement, f"{rows[0].utilisation:g}", ladder
    return *told, f"{mean:.2f}", f"{p98:.1f}", f"{violations:.2%}", f"{batch:.2f}"


def measure(config: BatchesConfig = QUICK, progress: Progress = silent, profile: Bins | None = None) -> Found:
    """On the stated facts, or on a measured profile. Raises `InputError` where the recorded traces are missing."""
    ground = profile or stated(BERT_BASE)
    works = list(product(range(config.seeds), PLACEMENTS, config.utilisations, LADDERS))
    rows: list[Row] = []
    for seed, placement, utilisation, ladder in works:
        rows.append(serve(with_batches(ground, ladder), placement, utilisation, config, seed))
        progress(len(rows), len(works))
    name = f"{ground.name} on {ground.device_class}" + ("" if profile else ", batches by their tokens")
    return Found(name, config, tuple(rows))


def stated(facts: Published, batches: Sequence[int] = LADDERS[-1]) -> Bins:
    """The paper's facts with batches: one of `n` texts takes what its tokens take on the line through 64 and 512."""
    slope, one = (facts.longest - facts.seconds(STEP)) / (EDGES[-1] - STEP), published_bins(facts)
    shapes = [Shape(edge, batch) for edge in EDGES for batch in batches]
    seconds = tuple(facts.seconds(STEP) + slope * (shape.length * shape.batch - STEP) for shape in shapes)
    return replace(one, shapes=(*shapes, one.shapes[-1]), seconds=seconds)


def with_batches(bins: Bins, ladder: Sequence[int]) -> Bins:
    """Its static shapes of these batch sizes alone. Raises `InputError` where a length has none of 1 text."""
    kept = [(shape, took) for shape, took in zip(bins.shapes, bins.seconds, strict=False) if shape.batch in ladder]
    lengths = {shape.length for shape in bins.shapes if not shape.dynamic}
    if not lengths or {shape.length for shape, _ in kept if shape.batch == 1} != lengths:
        raise InputError("profile", bins.name, "one with a static shape of 1 text for each of its lengths")
    shapes = (*(shape for shape, _ in kept), bins.shapes[-1])
    return replace(bins, shapes=shapes, seconds=tuple(took for _, took in kept))


def serve(bins: Bins, placement: str, utilisation: float, config: BatchesConfig, seed: int) -> Row:
    """One load by one ladder."""
    known = knowledge_of([bins], "static", placement)
    rate = utilisation * config.devices / _mean_seconds(known)
    trace = _trace(rate, config.seconds, seed, known)
    held = _planned(known, _trace(rate, config.seconds, seed + OTHER, known), config) if placement == "single" else ()
    told = Config(config.devices, period=NO_PLAN, drop_late=False, max_waiting=10**6, deployed=held)
    asked = _requests(trace, bins)
    journal = simulate(BinsScheduler(known, told), asked, SimulatedBins(known, asked))
    seen = observations(journal)
    latency = np.array([(one.answered or np.inf) - one.request.arrival for one in seen])
    figures = float(latency.mean()), float(np.quantile(latency, 0.98)), float(np.mean(latency > bins.slo))
    batch = 1 / float(np.mean([1 / (one.batch or 1) for one in seen]))
    ladder = tuple(sorted({shape.batch for shape in bins.shapes if not shape.dynamic}))
    return Row(placement, utilisation, ladder, seed, len(seen), *figures, batch)


def _mean_seconds(known: Knowledge) -> float:
    """Of the recorded requests alone, each in its own bin."""
    runtimes = known.runtimes
    lengths = np.minimum(traces.stretched()[0], runtimes[-1].length)
    at = np.searchsorted([one.length for one in runtimes], lengths)
    return float(np.mean(np.array([one.alone for one in runtimes])[at]))


def _planned(known: Knowledge, trace: Trace, config: BatchesConfig) -> tuple[int, ...]:
    """The runtime of every device."""
    first = np.searchsorted([one.length for one in known.runtimes], trace.lengths)
    window = Window(config.seconds, trace.times.tolist(), first.tolist())
    held = start_plan(known, config.devices)
    counts = plan(known, window, config.devices, Config().plan, Config().dispatch, held)
    return tuple(runtime for runtime, count in enumerate(counts) for _ in range(count))


def _trace(rate: float, seconds: float, seed: int, known: Knowledge) -> Trace:
    made = traces.stable(rate, seconds, seed)
    return replace(made, lengths=np.minimum(made.lengths, known.streams[0].max_length))


def _requests(trace: Trace, bins: Bins) -> list[Request]:
    told = zip(trace.times.tolist(), trace.lengths.tolist(), strict=True)
    return [Request(i, at, at + bins.slo, bins.name, 1.0, length) for i, (at, length) in enumerate(told)]
