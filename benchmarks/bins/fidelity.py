"""The same trace through the live service and through the simulator: how far apart are their latencies?

The simulator gets the arrivals that the service's journal tells, the service's own scheduler, the profile that the flow
measured, and two constants from a calibration run of another seed: what a launch takes beyond the device's own time
(processes, event loop), and what a request takes outside of the journal (HTTP, tokens, JSON), as the paper adds 0.8 ms.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import endpoint
from benchmarks.bins.live_contenders import Ground, ground
from benchmarks.bins.minilm import Served
from benchmarks.bins.requests import TASK, Load, embeddings, latency
from benchmarks.harness import Stage
from benchmarks.load_generator import replay, warm
from benchmarks.results import Target
from cli.service import service_settings
from pliant.bins.knowledge import Knowledge, knowledge_of
from pliant.bins.simulated import SimulatedBins
from pliant.errors import InputError
from pliant.protocol import Arrived, Finished, Journal, Launch, Request, Scheduler
from pliant.report import observations
from pliant.simulator import simulate
from serving.bins.assembly import make_scheduler
from serving.bins.catalog import load_catalog
from serving.bins.settings import BinsSettings
from serving.journal import read
from serving.lifecycle.artifacts import open_registry

MEAN_LIMIT, P98_LIMIT = 0.05, 0.10
HEADINGS = ("", "mean ms", "p50 ms", "p98 ms")

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class FidelityConfig:
    """Times in seconds. `share`: of the time of the dynamic runtime that the trace takes, about the utilisation."""

    seconds: float = 30.0
    calibration: float = 15.0
    share: float = 0.6
    warm: int = 60
    each: int = 8
    seed: int = 0


QUICK = FidelityConfig()
FULL = FidelityConfig(seconds=300.0, calibration=60.0)


@dataclass(frozen=True, slots=True)
class Overheads:
    """Constants in seconds: of a launch beyond the device's time, and of a request outside of the journal."""

    launch: float
    request: float


@dataclass(frozen=True)
class Fidelity:
    """Latencies by request, in seconds: at the client, and simulated with the overheads."""

    live: Seconds
    simulated: Seconds
    overheads: Overheads
    unanswered: int
    slowdown: float = 1.0  # what the live run's launches took on the device, over what the profile says of them

    def targets(self) -> list[Target]:
        return [
            Target("simulated mean latency apart from live", self.apart(np.mean), "<=", MEAN_LIMIT),
            Target("simulated p98 latency apart from live", self.apart(_p98), "<=", P98_LIMIT),
        ]

    def apart(self, of: Any) -> float:
        """Return |simulated - live| / live of a figure; NaN where a request had no answer."""
        return float("nan") if self.unanswered else float(abs(of(self.simulated) / of(self.live) - 1))

    def table(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for name, seconds in (("live", self.live), ("simulated", self.simulated)):
            figures = seconds.mean(), *np.quantile(seconds, (0.5, 0.98))
            rows.append((name, *(f"{1e3 * figure:.2f}" for figure in figures)))
        return rows

    def plain(self) -> dict[str, Any]:
        run = {"overheads": asdict(self.overheads), "requests": len(self.live), "slowdown": self.slowdown}
        return {**run, "latencies": self.table()}


def _p98(seconds: Seconds) -> float:
    return float(np.quantile(seconds, 0.98))


def measure(config: FidelityConfig, stage: Stage) -> Fidelity:
    """Serve and simulate all-MiniLM-L6-v2 on one trace. Raises `InputError` for what is missing."""
    on = ground(config.each, config.seed, stage)
    rate = config.share / on.seconds()
    with stage("calibration run") as progress:
        load = on.load("calibration", rate, config.calibration, config.seed + 1000)
        overheads = overheads_of(*_run(on, load, config))
        progress(1, 1)
    with stage("live run, then the simulator") as progress:
        live, journal = _run(on, on.load("trace", rate, config.seconds, config.seed), config)
        progress(1, 1)
    return compared(_scheduler(on.served), knowledge_of([on.served.bins]), live, journal, overheads)


def _scheduler(served: Served) -> Scheduler:
    """Return a scheduler as the service makes it."""
    settings = service_settings(served.project, BinsSettings)
    return make_scheduler(settings, load_catalog(open_registry(settings), settings.alias))


def _run(on: Ground, load: Load, config: FidelityConfig) -> tuple[Seconds, Journal]:
    """Return the latencies at the client by request (NaN: no answer), and the journal of the same requests."""
    project = on.served.project
    path = project.home / "fidelity" / f"{load.name}.jsonl"
    with endpoint.serving("bins", project=project, journal=path, refresh_seconds=0.0) as url:
        warm(url, {TASK: on.texts.mixed}, config.warm, embeddings())
        pool = {TASK: on.texts.by_length}
        replies = asyncio.run(replay(url, load.requests, pool, config.seed, form=embeddings()))
    seen = [latency(reply) if reply.status == 200 else np.nan for reply in replies]
    return np.array(seen), since(read(path), config.warm)


def since(journal: Journal, first: int) -> Journal:
    """Return the entries from the arrival of request `first` on: those before it were all answered by then."""
    for place, entry in enumerate(journal):
        if isinstance(entry.event, Arrived) and entry.event.request.id == first:
            return journal[place:]
    raise InputError("journal", f"{len(journal)} entries", f"one with the arrival of request {first}")


def overheads_of(live: Seconds, journal: Journal) -> Overheads:
    """Return means: a sum over a queue of requests depends on them, not on medians."""
    return Overheads(_beyond(journal), float(np.nanmean(live) - latencies(journal).mean()))


def _beyond(journal: Journal) -> float:
    """Return the mean seconds from a launch's decision to its end that its device does not count."""
    began: dict[int, float] = {}
    seconds = []
    for entry in journal:
        if isinstance(entry.event, Finished) and entry.event.launch in began:
            seconds.append(entry.now - began[entry.event.launch] - entry.event.seconds)
        began |= {a.id: entry.now for a in entry.actions if isinstance(a, Launch) and a.kind == "run"}
    return float(np.mean(seconds))


def latencies(journal: Journal) -> Seconds:
    """Return the seconds from arrival to answer, of the answered."""
    return np.array([o.answered - o.request.arrival for o in observations(journal) if o.answered is not None])


def arrived(journal: Journal) -> list[Request]:
    return [entry.event.request for entry in journal if isinstance(entry.event, Arrived)]


def compared(
    scheduler: Scheduler, knowledge: Knowledge, live: Seconds, journal: Journal, overheads: Overheads
) -> Fidelity:
    """Send the journal's requests through the simulator, and compare them with `live`."""
    requests = arrived(journal)
    device = SimulatedBins(knowledge, requests, beyond=overheads.launch)
    simulated = latencies(simulate(scheduler, requests, device)) + overheads.request
    unanswered = int(np.isnan(live).sum()) + len(requests) - len(simulated)
    return Fidelity(live, simulated, overheads, unanswered, _slowdown(journal, SimulatedBins(knowledge, requests)))


def _slowdown(journal: Journal, profile: SimulatedBins) -> float:
    """Return the seconds of launches over the profile's: far from 1 the machine was not as it was when that was measured."""
    launches = {a.id: a for entry in journal for a in entry.actions if isinstance(a, Launch) and a.requests}
    ended = [e.event for e in journal if isinstance(e.event, Finished) and e.event.launch in launches]
    return sum(event.seconds for event in ended) / sum(profile(launches[event.launch])[0] for event in ended)
