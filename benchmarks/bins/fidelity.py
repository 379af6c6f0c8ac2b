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
from benchmarks.bins.live import Stage
from benchmarks.bins.live_contenders import Ground, ground
from benchmarks.bins.minilm import Served
from benchmarks.bins.requests import TASK, TIMEOUT, Load, embeddings, latency
from benchmarks.load_generator import one_by_one, replay
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
        """|simulated - live| / live of a figure; NaN where a request had no answer."""
        return float("nan") if self.unanswered else float(abs(of(self.simulated) / of(self.live) - 1))

    def table(self) -> list[tuple[str, ...]]:
        told = (("live", self.live), ("simulated", self.simulated))
        return [(n, *(f"{1e3 * x:.2f}" for x in (s.mean(), *np.quantile(s, (0.5, 0.98))))) for n, s in told]

    def plain(self) -> dict[str, Any]:
        told = {"overheads": asdict(self.overheads), "requests": len(self.live), "slowdown": self.slowdown}
        return {**told, "latencies": self.table()}


def _p98(seconds: Seconds) -> float:
    return float(np.quantile(seconds, 0.98))


def measure(config: FidelityConfig, stage: Stage) -> Fidelity:
    """With all-MiniLM-L6-v2. Raises `InputError` for what is missing."""
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
    """As the service makes it."""
    settings = service_settings(served.told, BinsSettings)
    return make_scheduler(settings, load_catalog(open_registry(settings), settings.alias))


def _run(on: Ground, load: Load, config: FidelityConfig) -> tuple[Seconds, Journal]:
    """Latencies at the client by request (NaN: no answer), and the journal of the same requests."""
    path = on.served.told.home / "fidelity" / f"{load.name}.jsonl"
    with endpoint.serving("bins", told=on.served.told, journal=path, refresh_seconds=0.0) as service:
        warm = [Request(i, 0.0, TIMEOUT, TASK) for i in range(config.warm)]
        asyncio.run(one_by_one(service.url, warm, {TASK: on.texts.mixed}, form=embeddings()))
        pool = {TASK: on.texts.by_length}
        replies = asyncio.run(replay(service.url, load.requests, pool, config.seed, form=embeddings()))
    seen = [latency(reply) if reply.status == 200 else np.nan for reply in replies]
    return np.array(seen), since(read(path), config.warm)


def since(journal: Journal, first: int) -> Journal:
    """The entries from the arrival of request `first` on: those before it were all answered by then."""
    for place, entry in enumerate(journal):
        if isinstance(entry.event, Arrived) and entry.event.request.id == first:
            return journal[place:]
    raise InputError("journal", f"{len(journal)} entries", f"one with the arrival of request {first}")


def overheads_of(live: Seconds, journal: Journal) -> Overheads:
    """Means: a sum over a queue of requests depends on them, not on medians."""
    return Overheads(_beyond(journal), float(np.nanmean(live) - latencies(journal).mean()))


def _beyond(journal: Journal) -> float:
    """Mean seconds from a launch's decision to its end that its device does not tell of."""
    began: dict[int, float] = {}
    found = []
    for entry in journal:
        if isinstance(entry.event, Finished) and entry.event.launch in began:
            found.append(entry.now - began[entry.event.launch] - entry.event.seconds)
        began |= {one.id: entry.now for one in entry.actions if isinstance(one, Launch) and one.kind == "run"}
    return float(np.mean(found))


def latencies(journal: Journal) -> Seconds:
    """From arrival to answer, of the answered."""
    told = [one.answered - one.request.arrival for one in observations(journal) if one.answered is not None]
    return np.array(told)


def arrived(journal: Journal) -> list[Request]:
    return [entry.event.request for entry in journal if isinstance(entry.event, Arrived)]


def compared(
    scheduler: Scheduler, knowledge: Knowledge, live: Seconds, journal: Journal, overheads: Overheads
) -> Fidelity:
    """The journal's requests through the simulator, against `live`."""
    requests = arrived(journal)
    device = SimulatedBins(knowledge, requests, beyond=overheads.launch)
    found = latencies(simulate(scheduler, requests, device)) + overheads.request
    unanswered = int(np.isnan(live).sum()) + len(requests) - len(found)
    return Fidelity(live, found, overheads, unanswered, _slowdown(journal, SimulatedBins(knowledge, requests)))


def _slowdown(journal: Journal, profile: SimulatedBins) -> float:
    """Far from 1 the machine was not as it was when the profile was measured, and no simulator could tell."""
    launches = {one.id: one for entry in journal for one in entry.actions if isinstance(one, Launch) if one.requests}
    ended = [e.event for e in journal if isinstance(e.event, Finished) and e.event.launch in launches]
    return sum(one.seconds for one in ended) / sum(profile(launches[one.launch])[0] for one in ended)
