"""`pliant simulate bins`: what a load would cost on the champion's profile, by the scheduler that serves it and by others.

All streams with a champion share the devices and get equally many requests. Lengths are those that the champions were
made for; a recorded trace brings its own (longer ones count as the longest that the stream takes). The other schedulers
drop nothing, as published; a dropped request counts as not answered in time.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant import comparison, loads
from pliant.bins.artifact import PLACEMENTS, Bins
from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.planning.plan import start_plan
from pliant.bins.policies import choice_of
from pliant.bins.scheduler import BinsScheduler
from pliant.bins.simulated import JITTER, TYPICAL, SimulatedBins, capacity, reference_load, typical
from pliant.cli import journal, options
from pliant.cli.plan import Play, Simulation, with_shares
from pliant.errors import InputError, RegistryError
from pliant.flows import settings
from pliant.flows.champions import Champion, load_champions
from pliant.flows.release import open_registry
from pliant.protocol import Request
from pliant.report import Observation, observations, summarise
from pliant.simulator import simulate
from pliant.workload import ReferenceConfig
from pliant.worlds import Course

MOST_REQUESTS = 200_000
MOST_REFERENCE = 50_000
SHARES = sum(ReferenceConfig().quiet) + sum(ReferenceConfig().loud)
KINDS = f"{loads.DRAWN} or trace:FILE"
HEADINGS = ("", "requests", "in time", "mean ms", "p50 ms", "p98 ms", "p99 ms", "texts", "ran as", "dropped")
DEFAULT = Config().dispatch

Lengths = NDArray[np.int64]
Scheme = tuple[str, str, str, Mapping[str, Any] | comparison.Own]
"""A way to serve: its name, the runtimes, the placement, and changes to our scheduler's configuration, or an own one."""


def run(args: Namespace) -> None:
    """`pliant simulate bins`: print a table, one line a scheme. Raises `InputError`; without a champion `RegistryError`."""
    bins = [champion.artifact for champion in _champions(settings.prepare())]
    dispatch = args.dispatch or DEFAULT
    rows = compared(bins, args.load, dispatch, args.placement, args.workers, args.seed, args.policy)
    if args.json:
        options.print_json(rows)
        return
    names = ", ".join(stream.name for stream in bins)
    options.show(f"{names}: {args.load} on {args.workers} x {bins[0].device_class}", HEADINGS, map(_cells, rows))


def compared(
    bins: Sequence[Bins],
    load: str,
    dispatch: str,
    placement: str | None,
    workers: int,
    seed: int,
    policy: str = "default",
) -> list[dict[str, Any]]:
    """Return the reports of the same requests served by our scheduler, by padding, dynamic shapes and the published pair.

    `dispatch`, `placement` and `policy` are of our scheduler. Raises `InputError`.
    """
    schemes = _schemes(dispatch, placement or bins[0].placement, policy)
    requests = requests_of(load, bins, workers, seed)
    return [_row(scheme, bins, requests, workers, seed) for scheme in schemes]


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
    own = comparison.resolve("bins", policy)
    if not isinstance(own, str):
        if placement != "shared":
            raise InputError("placement", placement, f"shared with the installed policy {policy}")
        ours = _schemes(dispatch, placement, "default")
        return [(policy, ours[0][1], placement, own), *ours]
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


def _champions(project: settings.Settings) -> list[Champion[Bins]]:
    streams = list(load_champions(open_registry(project, "bins"), Bins).values())
    if not streams:
        raise RegistryError("the registry holds no champion of the bins system: run `pliant train bins` first")
    return streams


def setting_names() -> dict[int, str]:
    """Return the bins of the champions by number, such as mail/64x8. Raises `RegistryError` without one."""
    return _names([champion.artifact for champion in _champions(settings.prepare())])


def _names(bins: Sequence[Bins]) -> dict[int, str]:
    shapes = [(stream.name, shape) for stream in bins for shape in stream.shapes]
    return {
        number: f"{name}/{'dynamic' if shape.dynamic else f'{shape.length}x{shape.batch}'}"
        for number, (name, shape) in enumerate(shapes)
    }


def simulations(
    project: settings.Settings,
    load: str,
    policy: str = "default",
    dispatch: str | None = None,
    placement: str | None = None,
) -> list[Simulation]:
    """Return that of all streams under a load. Raises `InputError`, `RegistryError` without a champion."""
    champions = _champions(project)
    bins = [champion.artifact for champion in champions]
    scheme, names = _schemes(dispatch or DEFAULT, placement or bins[0].placement, policy)[0], _names(bins)

    def draw(seed: int) -> tuple[Sequence[Request], Play]:
        play = with_shares(lambda some, n, world: _played(scheme, bins, some, n, seed, world)[1], names)
        return requests_of(load, bins, 1, seed), play

    published = min(champion.published.created for champion in champions)

    def lasted(path: Path) -> list[tuple[float, float]]:
        known = knowledge_of(bins, *scheme[1:3])
        return journal.lasted(path, "bins", SimulatedBins(known, requests_of(load, bins, 1, 0)))

    return [Simulation(", ".join(stream.name for stream in bins), bins[0].device_class, published, draw, lasted)]


def _row(scheme: Scheme, bins: Sequence[Bins], requests: Sequence[Request], workers: int, seed: int) -> dict[str, Any]:
    known, observed = _played(scheme, bins, requests, workers, seed)
    latencies = [fate.answered - fate.request.arrival for fate in observed if fate.answered is not None]
    mean, report = float(np.mean(latencies)) if latencies else float("nan"), summarise(observed)
    return {"scheme": scheme[0], **asdict(report), "mean": mean, "ran_as": _lengths(known, report.settings)}


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    figures = *(f"{1e3 * row[name]:.1f}" for name in ("mean", "p50", "p98", "p99")), f"{row['batch']:.2f}"
    ran_as = " ".join(f"{length}:{share:.0%}" for length, share in row["ran_as"].items())
    drops = ", ".join(f"{reason}: {count}" for reason, count in row["drops"].items()) or "-"
    return row["scheme"], str(row["requests"]), f"{row['attainment']:.1%}", *figures, ran_as, drops


def _played(
    scheme: Scheme,
    bins: Sequence[Bins],
    requests: Sequence[Request],
    workers: int,
    seed: int,
    course: Course | None = None,
) -> tuple[Knowledge, list[Observation]]:
    _, runtimes, placement, how = scheme
    known = knowledge_of(bins, runtimes, placement)
    device = SimulatedBins(known, requests, np.random.default_rng(seed), JITTER if course is None else 0.0)
    deployed: tuple[int, ...] = ()  # which runtime each device holds before the first plan
    if known.placement == "single":
        shares: list[float] = []
        for stream, artifact in zip(known.streams, bins, strict=True):
            at = np.searchsorted([runtime.length for runtime in stream.runtimes], typical_of(artifact))
            shares += (np.bincount(at, minlength=len(stream.runtimes)) / (TYPICAL * len(bins))).tolist()
        deployed = tuple(start_plan(known, workers, shares))
    if callable(how):
        scheduler = comparison.scheduler(how(known), workers)
    else:
        scheduler = BinsScheduler(known, Config(workers, deployed=deployed, **how))
    return known, observations(simulate(scheduler, requests, device, course=course))


def _lengths(known: Knowledge, used: Mapping[int, int]) -> dict[str, float]:
    """Return the share of the answers by the length of the runtime that gave them."""
    counts: Counter[str] = Counter()
    for runtime in known.runtimes:
        where = f"{known.streams[runtime.stream].name} " if len(known.streams) > 1 else ""
        length = "dynamic" if runtime.table else str(runtime.length)
        counts[where + length] += sum(used.get(setting, 0) for setting in runtime.settings)
    total = max(1, counts.total())
    return {length: count / total for length, count in counts.items() if count}


def requests_of(load: str, bins: Sequence[Bins], workers: int, seed: int) -> list[Request]:
    """Return the load's requests in order of arrival. Raises `InputError` for an unknown load, or one too large."""
    rng = np.random.default_rng(seed)
    if load == "reference":  # shorter where the devices are so fast that it would have too many requests
        throughput = workers * capacity(knowledge_of(bins))
        config = ReferenceConfig(seconds=min(ReferenceConfig().seconds, MOST_REFERENCE / (SHARES * throughput)))
        lengths = {stream.name: typical_of(stream).tolist() for stream in bins}
        slos = {stream.name: stream.slo for stream in bins}
        return list(reference_load(lengths, slos, throughput, seed, config).requests)
    if load.startswith(loads.JOURNAL):
        known, requests = knowledge_of(bins), journal.recorded(load, "bins", MOST_REQUESTS)
        return [replace(each, length=min(each.length, known.stream(each.task).max_length)) for each in requests]
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
