"""The promotion gate: champion and challenger replay the same reference load in the simulator.

Each runs with its own latencies and its own test accuracies; the load is set by the champion's capacity. The challenger
passes if it earns no less, but for the noise of the draws. Knows no Prefect and no registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flows.tokens.config import GateConfig
from flows.tokens.stages import Bundle
from pliant.report import Report, report
from pliant.simulator import simulate
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from pliant.tokens.policies import make
from pliant.tokens.reference import ReferenceConfig, ReferenceLoad, reference_load
from pliant.tokens.simulated import SimulatedDevice


@dataclass(frozen=True, slots=True)
class Verdict:
    """One report a seed for either side; no reports of the champion where there is none."""

    passed: bool
    reason: str
    champion: tuple[Report, ...]
    challenger: tuple[Report, ...]
    bound: tuple[float, ...] = ()  # the most that any scheduler could earn with the challenger, per seed


def judge(
    champion: Bundle | None, challenger: Bundle, config: GateConfig, reference: ReferenceConfig | None = None
) -> Verdict:
    """Whether the challenger may take the champion's place, by the load that `reference` describes."""
    champion = champion and _measured_alike(champion, challenger)
    standard = champion or challenger
    names = [task.name for task in challenger.tasks]
    if champion is not None:
        names = [task.name for task in champion.tasks if task.name in names]
    if not names:
        return Verdict(False, "the challenger serves none of the champion's tasks", (), ())
    capacity = standard.profile.latency.throughput(0, standard.profile.latency.batches[-1])
    loads = [reference_load(names, capacity, seed, reference) for seed in range(config.seeds)]
    challenged = tuple(_replay(challenger, load, seed) for seed, load in enumerate(loads))
    bound = tuple(_bound(challenger, load) for load in loads)
    if champion is None:
        return Verdict(True, "there is no champion yet", (), challenged, bound)
    defended = tuple(_replay(champion, load, seed) for seed, load in enumerate(loads))
    new, old = _utility(challenged), _utility(defended)
    passed = new >= old * (1 - config.tolerance)
    words = "no worse than" if passed else "worse than"
    return Verdict(passed, f"it earns {new:.1f}, {words} the champion's {old:.1f}", defended, challenged, bound)


def _measured_alike(champion: Bundle, challenger: Bundle) -> Bundle:
    """The champion on the newer latencies where both were measured on the same backbone and class of device.

    An older measurement of the same thing is no merit: taken at a quieter hour it would hold its place for ever.
    """
    old, new = champion.profile, challenger.profile
    if (old.backbone, old.device) != (new.backbone, new.device) or old.latency.settings != new.latency.settings:
        return champion
    return replace(champion, profile=replace(old, latency=new.latency))


def _bound(bundle: Bundle, load: ReferenceLoad) -> float:
    tested = {task.name: task.test_accuracy for task in bundle.tasks}
    return fluid(load.requests, Devices(bundle.profile.latency, tested)).utility


def _utility(reports: Sequence[Report]) -> float:
    return float(np.mean([r.utility for r in reports]))


def _replay(bundle: Bundle, load: ReferenceLoad, seed: int) -> Report:
    scheduler = make("default", tokens_knowledge(bundle.profile, bundle.tasks))
    accuracy = {task.name: task.test_accuracy for task in bundle.tasks}
    device = SimulatedDevice(bundle.profile.latency, accuracy, load.requests, np.random.default_rng(seed), jitter=0.05)
    return report(simulate(scheduler, load.requests, device))
