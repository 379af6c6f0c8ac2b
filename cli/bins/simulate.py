"""`pliant simulate bins`: what a load would cost on the champion's profile, by the scheduler that serves it and by others.

All streams with a champion share the devices and are asked alike. Lengths are those that the champions were made for; a
recorded trace brings its own (longer ones count as the longest that the stream takes). The others drop nothing, as
published; a dropped request counts as not answered in time.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from cli import loads
from flows import settings
from flows.bins.live import champion
from pliant.bins.artifact import PLACEMENTS, Bins
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.reference import ReferenceConfig, capacity, reference_load
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import SimulatedBins
from pliant.errors import InputError, RegistryError
from pliant.protocol import Request
from pliant.report import observations, summarise
from pliant.simulator import simulate

MOST_REQUESTS = 200_000
MOST_REFERENCE = 50_000
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
TYPICAL = 500  # lengths that stand for all
JITTER = 0.05  # standard deviation of a duration's logarithm
KINDS = f"{loads.DRAWN}, trace:FILE or a parquet file (requests each second)"
TWITTER = "twitter-"
HEADINGS = ("", "asked", "in time", "mean ms", "p50 ms", "p98 ms", "p99 ms", "texts", "ran as", "dropped")
DEFAULT = Config().dispatch

Lengths = NDArray[np.int64]
Scheme = tuple[str, str, str, Mapping[str, Any]]
"""Its name, the runtimes used, the placement, and what it changes in the scheduler's configuration."""


def run(args: Namespace) -> None:
    """`pliant simulate bins`."""
    simulate_load(args.load, args.dispatch or DEFAULT, args.placement, args.workers, args.seed)


def simulate_load(load: str, dispatch: str, placement: str | None, workers: int, seed: int) -> None:
    """Print a table: one line a scheme. Raises `InputError` for bad values, `RegistryError` without a champion."""
    told = settings.read()
    settings.prepare(told)
    found = list(champion(told).values())
    if not found:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    Console(emoji=False).print(compared(found, load, dispatch, placement, workers, seed))


def compared(bins: Sequence[Bins], load: str, dispatch: str, placement: str | None, workers: int, seed: int) -> Table:
    """The same requests by our scheduler as told, and by padding, dynamic shapes and the published pair."""
    schemes = _schemes(dispatch, placement or bins[0].placement)
    asked = requests(load, bins, workers, seed)
    names = ", ".join(one.name for one in bins)
    first, *others = HEADINGS
    table = Table(Column(first, no_wrap=True), *others, title=f"{names}: {load} on {workers} x {bins[0].device_class}")
    for scheme in schemes:
        table.add_row(*_row(scheme, bins, asked, workers, seed))
    return table


def _schemes(dispatch: str, placement: str) -> list[Scheme]:
    if placement not in PLACEMENTS:
        raise InputError("placement", placement, f"one of {PLACEMENTS}")
    if dispatch not in DISPATCHES:
        raise InputError("dispatch", dispatch, f"one of {DISPATCHES}")
    if placement == "shared" and dispatch != DEFAULT:
        limit = (
            f"{DEFAULT} under placement shared, where one queue serves all devices; the others need placement single"
        )
        raise InputError("dispatch", dispatch, limit)
    plain: dict[str, Any] = {"dispatch": "intra", "plan": "published", "drop_late": False}
    pair: dict[str, Any] = {"dispatch": "published", "plan": "published", "period": 120.0, "drop_late": False}
    return [
        (
            f"ours, {placement}" if placement == "shared" else f"ours, {dispatch}",
            "all",
            placement,
            {"dispatch": dispatch},
        ),
        ("ST: padding", "longest", "single", plain),
        ("DT: dynamic shapes", "dynamic", "single", plain),
        ("published pair", "static", "single", pair),
    ]


def _row(scheme: Scheme, bins: Sequence[Bins], asked: Sequence[Request], workers: int, seed: int) -> tuple[str, ...]:
    name, runtimes, placement, told = scheme
    known = knowledge_of(bins, runtimes, placement)
    device = SimulatedBins(known, asked, np.random.default_rng(seed), JITTER)
    config = Config(workers, deployed=_deployed(known, bins, workers), **told)
    seen = observations(simulate(BinsScheduler(known, config), asked, device))
    found = summarise(seen)
    latency = [one.answered - one.request.arrival for one in seen if one.answered is not None]
    seconds = float(np.mean(latency)) if latency else float("nan"), found.p50, found.p98, found.p99
    drops = ", ".join(f"{reason}: {count}" for reason, count in found.drops.items()) or "-"
    figures = *(f"{1e3 * one:.1f}" for one in seconds), f"{found.batch:.2f}"
    return name, str(found.requests), f"{found.attainment:.1%}", *figures, _lengths(known, found.settings), drops


def _deployed(known: Knowledge, bins: Sequence[Bins], workers: int) -> tuple[int, ...]:
    """What each device holds before the first plan, by the lengths observed."""
    if known.placement == "shared":
        return ()
    shares: list[float] = []
    for stream, one in zip(known.streams, bins, strict=True):
        at = np.searchsorted([runtime.length for runtime in stream.runtimes], typical(one))
        shares += (np.bincount(at, minlength=len(stream.runtimes)) / (TYPICAL * len(bins))).tolist()
    return tuple(start_plan(known, workers, shares))


def _lengths(known: Knowledge, used: Mapping[int, int]) -> str:
    """Share of the answers by length of the runtime that made them."""
    counts: Counter[str] = Counter()
    for runtime in known.runtimes:
        where = f"{known.streams[runtime.stream].name} " if len(known.streams) > 1 else ""
        length = "dynamic" if runtime.table else str(runtime.length)
        counts[where + length] += sum(used.get(setting, 0) for setting in runtime.settings)
    total = max(1, counts.total())
    return " ".join(f"{length}:{count / total:.0%}" for length, count in counts.items() if count)


def requests(load: str, bins: Sequence[Bins], workers: int, seed: int) -> list[Request]:
    """The load's requests, in order. Raises `InputError` for a load that is none, or too large."""
    rng = np.random.default_rng(seed)
    if load == "reference":
        return _reference(bins, workers, seed)
    if load.startswith(TWITTER):
        return _twitter(load, bins, seed, rng)
    if load.startswith(loads.TRACE):
        trace = loads.trace(load, ("length",), MOST_REQUESTS)
        if trace["length"].min() < 1:
            raise InputError("load", load, "lengths of at least 1 token")
        return _drawn(trace[loads.SECONDS], bins, rng, trace["length"].astype(np.int64))
    drawn = loads.drawn(load, MOST_REQUESTS, rng)
    return _drawn(loads.counted(load, KINDS, MOST_REQUESTS, rng) if drawn is None else drawn, bins, rng)


def _twitter(load: str, bins: Sequence[Bins], seed: int, rng: np.random.Generator) -> list[Request]:
    """twitter-stable:RATE:SECONDS or twitter-bursty:RATE:SECONDS[:drift], from data beside a checkout."""
    from benchmarks.bins import traces

    loads.warn("twitter-...", "trace:FILE, with the columns seconds and length")
    kind, *numbers = load.split(":")
    drift = kind == "twitter-bursty" and numbers[2:] == ["drift"]
    if kind not in ("twitter-stable", "twitter-bursty"):
        raise InputError("load", load, KINDS)
    rate, seconds = loads.rate_and_seconds(load, numbers[:2] if drift else numbers, MOST_REQUESTS)
    trace = (traces.stable if kind == "twitter-stable" else traces.bursty)(rate, seconds, seed, drift)
    return _drawn(trace.times, bins, rng, trace.lengths.astype(np.int64))


def _reference(bins: Sequence[Bins], workers: int, seed: int) -> list[Request]:
    """Shorter where the devices bear so much that it would be endless."""
    borne = workers * capacity(knowledge_of(bins))
    config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, MOST_REFERENCE / (SHARES * borne)))
    lengths, slos = {one.name: typical(one).tolist() for one in bins}, {one.name: one.slo for one in bins}
    return list(reference_load(lengths, slos, borne, seed, config).requests)


def _drawn(
    times: NDArray[np.float64], bins: Sequence[Bins], rng: np.random.Generator, lengths: Lengths | None = None
) -> list[Request]:
    """Requests at these times, of any stream alike; of these lengths, or those observed."""
    if not len(times):
        raise InputError("load", "no request", "at least one in the time given")
    of = [typical(one) for one in bins]
    which = rng.integers(len(bins), size=len(times))
    at = rng.integers(TYPICAL, size=len(times)) if lengths is None else lengths
    made = []
    for i, (time, stream, pick) in enumerate(zip(times.tolist(), which.tolist(), at.tolist(), strict=True)):
        one = bins[stream]
        length = int(of[stream][pick]) if lengths is None else min(pick, one.shapes[-1].length)
        made.append(Request(i, time, time + one.slo, one.name, 1.0, length))
    return made


def typical(bins: Bins) -> Lengths:
    """[TYPICAL] lengths distributed as those observed; where none were, all the longest."""
    total = bins.lengths.sum()
    if not total:
        return np.full(TYPICAL, bins.shapes[-1].length)
    found: Lengths = np.searchsorted(np.cumsum(bins.lengths), (np.arange(TYPICAL) + 0.5) / TYPICAL * total)
    return np.clip(found, 1, bins.shapes[-1].length)
