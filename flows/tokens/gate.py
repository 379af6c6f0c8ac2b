"""The promotion gate: champion and challenger replay the same reference load in the simulator.

Each runs with its own latencies, of one hour where both can be run, and its own test accuracies; the load is set by the
champion's capacity. The challenger passes if it earns no less, but for the noise of the draws, and no class of a task
falls. Knows no Prefect and no registry.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pliant.flows.beside import NOTHING, Beside
from pliant.flows.config import GateConfig
from pliant.flows.gate import FIRST, Judged, judged, of_replays, rejection
from pliant.flows.tokens.stages import Bundle
from pliant.progress import Progress, silent
from pliant.report import Report, report
from pliant.simulator import simulate
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import make
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from pliant.tokens.simulated import ReferenceConfig, ReferenceLoad, SimulatedDevice, reference_load


@dataclass(frozen=True, slots=True)
class Side:
    """One side's reports, one a replay, and the most that any scheduler could earn with it in each."""

    reports: tuple[Report, ...] = ()
    bound: tuple[float, ...] = ()

    @property
    def utility(self) -> float:
        return float(np.mean([report.utility for report in self.reports]))

    def deciding(self) -> dict[str, str]:
        if not self.reports:
            return {}
        right = float(np.mean([report.accuracy for report in self.reports]))
        most = (
            {"share of what the best scheduler could expect": f"{self.utility / np.mean(self.bound):.1%}"}
            if self.bound
            else {}
        )
        alike = {"answers that are right": f"{right:.2%}", **of_replays(self.reports)}
        return {"utility earned": f"{self.utility:.1f}", **most, **alike}


Verdict = Judged[Side]


def judge(
    champion: Bundle | None,
    challenger: Bundle,
    config: GateConfig,
    reference: ReferenceConfig | None = None,
    progress: Progress = silent,
    beside: Beside = NOTHING,
) -> Verdict:
    """Judge whether the challenger may take the champion's place, by the load that `reference` describes.

    `beside`: what was measured of both now.
    """
    champion = champion and _measured_alike(champion, challenger, beside, config.tolerance)
    standard = champion or challenger
    names = [task.name for task in challenger.tasks]
    if champion is not None:
        names = [task.name for task in champion.tasks if task.name in names]
    if not names:
        return judged("the challenger serves none of the champion's tasks", "", Side())
    capacity = standard.profile.latency.throughput(0, standard.profile.latency.batches[-1])
    loads = [reference_load(names, capacity, seed, reference) for seed in range(config.seeds)]
    tested = Devices(challenger.profile.latency, {task.name: task.test_accuracy for task in challenger.tasks})
    new = Side(_replays(challenger, loads), tuple(fluid(load.requests, tested).utility for load in loads))
    progress(1, 2)
    if champion is None:
        return judged("", FIRST, new)
    old = Side(_replays(champion, loads))
    earned, before = f"it earns {new.utility:.1f}", f"{old.utility:.1f}"
    worse = beside.fallen(config.tolerance) or rejection(
        new.utility >= old.utility * (1 - config.tolerance), earned, before
    )
    now = beside.describe(config.tolerance)
    return judged(worse and worse + now, f"{earned}, no worse than the champion's {before}{now}", new, old)


def _measured_alike(champion: Bundle, challenger: Bundle, beside: Beside, tolerance: float) -> Bundle:
    """Return the champion on latencies of the challenger's hour, where that is known.

    Those are the challenger's own where class of device and precision are alike, and the backbone, too, or what it takes
    now: settings that the champion alone has, such as another choice of operating points, take what changed at those that
    both have. Else they are the champion's, corrected by what both take now.
    """
    old, new = champion.profile, challenger.profile
    same = old.backbone == new.backbone or beside.alike(tolerance)
    alike = same and old.device == new.device and old.precision in (None, new.precision)
    before, now = old.latency, new.latency
    both = [s for s in before.settings if s in now.settings and old.points.get(s) == new.points.get(s)]
    if not alike or not both or before.batches != now.batches:
        return replace(champion, profile=replace(old, latency=before.scaled(beside.correction(tolerance))))
    change = float(np.median([np.divide(now.row(setting), before.row(setting)) for setting in both]))
    rows = [now.row(s) if s in both else tuple(change * seconds for seconds in before.row(s)) for s in before.settings]
    return replace(champion, profile=replace(old, latency=replace(now, settings=before.settings, seconds=tuple(rows))))


def _replays(bundle: Bundle, loads: list[ReferenceLoad]) -> tuple[Report, ...]:
    reports, latency = [], bundle.profile.latency
    accuracy = {task.name: task.test_accuracy for task in bundle.tasks}
    for seed, load in enumerate(loads):
        scheduler = make("default", tokens_knowledge(bundle.profile, bundle.tasks))
        device = SimulatedDevice(latency, accuracy, load.requests, np.random.default_rng(seed), jitter=0.05)
        reports.append(report(simulate(scheduler, load.requests, device)))
    return tuple(reports)
