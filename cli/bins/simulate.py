"""`pliant simulate bins`: what a load would cost on the champion's profile, by the scheduler that serves it and by others.

All streams with a champion share the devices and get equally many requests. Lengths are those that the champions were
made for; a recorded trace brings its own (longer ones count as the longest that the stream takes). The other schedulers
drop nothing, as published; a dropped request counts as not answered in time.
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

from pliant import comparison, loads
from pliant.bins.artifact import PLACEMENTS, Bins
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.policies import choice_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import JITTER, TYPICAL, SimulatedBins, capacity, reference_load, typical
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.champions import champion_artifacts
from pliant.protocol import Request
from pliant.report import observations, summarise
from pliant.simulator import simulate
from pliant.workload import ReferenceConfig

MOST_REQUESTS = 200_000
MOST_REFERENCE = 50_000
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
KINDS = f"{loads.DRAWN} or trace:FILE"
HEADINGS = ("", "requests", "in time", "mean ms", "p50 ms", "p98 ms", "p99 ms", "texts", "ran as", "dropped")
DEFAULT = Config().dispatch

Lengths = NDArray[np.int64]
Scheme = tuple[str, str, str, Mapping[str, Any]]
"""A way to serve: its name, the runtimes used, the placement, and changes to the scheduler's configuration."""


def run(args: Namespace) -> None:
    """`pliant simulate bins`: print a table, one line a scheme. Raises `InputError`; without a champion `RegistryError`."""
    project = settings.prepare()
    streams = list(champion_artifacts(project, Bins).values())
    if not streams:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    dispatch = args.dispatch or DEFAULT
    table = compared(streams, args.load, dispatch, args.placement, args.workers, args.seed, args.policy)
    Console(emoji=False).print(table)


def compared(
    bins: Sequence[Bins],
    load: str,
    dispatch: str,
    placement: str | None,
    workers: int,
    seed: int,
    policy: str = "default",
) -> Table:
    """Return a table of the same requests served by our scheduler, by padding, dynamic shapes and the published pair.

    `dispatch`, `placement` and `policy` are of our scheduler. Raises `InputError`.
    """
    own = comparison.resolve("bins", policy)
    if not isinstance(own, str) and (placement or bins[0].placement) != "shared":
        raise InputError("placement", placement or bins[0].placement, f"shared with the installed policy {policy}")
    known_policy = policy if isinstance(own, str) else "default"
    schemes = _schemes(dispatch, placement or bins[0].placement, known_policy)
    requests = requests_of(load, bins, workers, seed)
    names = ", ".join(stream.name for stream in bins)
    first, *others = HEADINGS
    table = Table(Column(first, no_wrap=True), *others, title=f"{names}: {load} on {workers} x {bins[0].device_class}")
    if not isinstance(own, str):
        table.add_row(*_row((policy, *schemes[0][1:]), bins, requests, workers, seed, own))
    for scheme in schemes:
        table.add_row(*_row(scheme, bins, requests, workers, seed))
    return table


def _schemes(dispatch: str, placement: str, policy: str) -> list[Scheme]:
    if placement not in PLACEMENTS:
        raise InputError("placement", placement, f"one of {PLACEMENTS}")
    if dispatch not in DISPATCHES:
        raise InputError("dispatch", dispatch, f"one of {DISPATCHES}")
    if placement == "shared" and dispatch != DEFAULT:
        limit = (
            f"{DEFAULT} under placement shared, where one queue serves all devices; the others need placement single"
        )
        raise InputError("dispatch", dispatch, limit)
    choice, kind = choice_of(policy, placement), placement if placement == "shared" else dispatch
    plain: dict[str, Any] = {"dispatch": "published", "plan": "published", "drop_late": False}
    pair: dict[str, Any] = {"dispatch": "published", "plan": "published", "period": 120.0, "drop_late": False}
    return [
        (
            f"ours, {kind}" if policy == "default" else f"{policy}, {kind}",
            choice.runtimes,
            placement,
            {"dispatch": dispatch, **choice.changes},
        ),
        ("ST: padding", "longest", "single", plain),
        ("DT: dynamic shapes", "dynamic", "single", plain),
        ("published pair", "static", "single", pair),
    ]


def _row(
    scheme: Scheme,
    bins: Sequence[Bins],
    requests: Sequence[Request],
    workers: int,
    seed: int,
    own: comparison.Own | None = None,
) -> tuple[str, ...]:
    name, runtimes, placement, changes = scheme
    known = knowledge_of(bins, runtimes, placement)
    device = SimulatedBins(known, requests, np.random.default_rng(seed), JITTER)
    deployed: tuple[int, ...] = ()  # which runtime each device holds before the first plan
    if known.placement == "single":
        shares: list[float] = []
        for stream, artifact in zip(known.streams, bins, strict=True):
            at = np.searchsorted([runtime.length for runtime in stream.runtimes], typical_of(artifact))
            shares += (np.bincount(at, minlength=len(stream.runtimes)) / (TYPICAL * len(bins))).tolist()
        deployed = tuple(start_plan(known, workers, shares))
    config = Config(workers, deployed=deployed, **changes)
    scheduler = comparison.scheduler(own(known), workers) if own else BinsScheduler(known, config)
    observed = observations(simulate(scheduler, requests, device))
    report = summarise(observed)
    latencies = [fate.answered - fate.request.arrival for fate in observed if fate.answered is not None]
    latency = float(np.mean(latencies)) if latencies else float("nan"), report.p50, report.p98, report.p99
    drops = ", ".join(f"{reason}: {count}" for reason, count in report.drops.items()) or "-"
    figures = *(f"{1e3 * seconds:.1f}" for seconds in latency), f"{report.batch:.2f}"
    return name, str(report.requests), f"{report.attainment:.1%}", *figures, _lengths(known, report.settings), drops


def _lengths(known: Knowledge, used: Mapping[int, int]) -> str:
    """Return the share of the answers by the length of the runtime that gave them, as text."""
    counts: Counter[str] = Counter()
    for runtime in known.runtimes:
        where = f"{known.streams[runtime.stream].name} " if len(known.streams) > 1 else ""
        length = "dynamic" if runtime.table else str(runtime.length)
        counts[where + length] += sum(used.get(setting, 0) for setting in runtime.settings)
    total = max(1, counts.total())
    return " ".join(f"{length}:{count / total:.0%}" for length, count in counts.items() if count)


def requests_of(load: str, bins: Sequence[Bins], workers: int, seed: int) -> list[Request]:
    """Return the load's requests in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    rng = np.random.default_rng(seed)
    if load == "reference":  # shorter where the devices are so fast that it would have too many requests
        throughput = workers * capacity(knowledge_of(bins))
        config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, MOST_REFERENCE / (SHARES * throughput)))
        lengths = {stream.name: typical_of(stream).tolist() for stream in bins}
        slos = {stream.name: stream.slo for stream in bins}
        return list(reference_load(lengths, slos, throughput, seed, config).requests)
    if load.startswith(loads.TRACE):
        trace = loads.trace(load, ("length",), MOST_REQUESTS)
        if trace["length"].min() < 1:
            raise InputError("load", load, "lengths of at least 1 token")
        return _drawn(trace[loads.SECONDS], trace["length"].astype(np.int64), bins, rng)
    return _drawn(loads.drawn(load, KINDS, MOST_REQUESTS, rng), None, bins, rng)


def _drawn(
    times: NDArray[np.float64], lengths: Lengths | None, bins: Sequence[Bins], rng: np.random.Generator
) -> list[Request]:
    """Return requests at these times, each of a stream drawn with equal chances; of `lengths`, or of observed ones."""
    if not len(times):
        raise InputError("load", "no request", "at least one in the time given")
    observed = [typical_of(stream) for stream in bins]
    streams = rng.integers(len(bins), size=len(times))
    picks = rng.integers(TYPICAL, size=len(times)) if lengths is None else lengths
    requests = []
    for number, (time, at, pick) in enumerate(zip(times.tolist(), streams.tolist(), picks.tolist(), strict=True)):
        stream = bins[at]
        length = int(observed[at][pick]) if lengths is None else min(pick, stream.shapes[-1].length)
        requests.append(Request(number, time, time + stream.slo, stream.name, 1.0, length))
    return requests


def typical_of(bins: Bins) -> Lengths:
    """Return lengths distributed as those observed; all are the longest where none were observed."""
    return np.clip(typical(bins.lengths), 1, bins.shapes[-1].length)
