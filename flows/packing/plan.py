"""How a policy is run with a generator on a device: its parameters, chosen by replaying the reference workload.

Of the grid of (level, patience) that pair is taken which completes requests soonest on average, among those that compute
few tokens again and leave nobody waiting much longer than on-demand paging does. Everything here is simulated, with the
steps that were measured. Knows no Prefect and no registry.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np

from pliant.flows.packing.config import PlanConfig
from pliant.packing.artifact import Packing, Predictor
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.reference import ReferenceConfig, ReferenceLoad, capacity, reference_load, rules_of
from pliant.packing.scheduling.simulated import simulate, summary
from pliant.profiling.packing import pace
from pliant.progress import Progress, silent

COMPARED = ("default", "paged", "s3", "orca", "oracle")
"""Policies that a run shows side by side."""


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """A policy's figures on the reference workload, in the simulator. Seconds and tokens."""

    policy: str
    level: float
    patience: float
    mean: float  # completion
    p99: float
    tokens_per_second: float
    recomputed: float  # share of the tokens
    preemptions: float
    batch: float  # sequences in an iteration
    unfinished: float  # share of the requests


@dataclass(frozen=True, slots=True)
class Choice:
    """`tried`: the grid in its order; `policies`: those of COMPARED, `default` with the chosen parameters."""

    level: float
    patience: float
    within: bool  # whether the limits of the plan hold for it
    tried: tuple[PolicyFigures, ...]
    policies: tuple[PolicyFigures, ...]


def simulate_policy(packing: Packing, rules: Rules, loads: Sequence[ReferenceLoad]) -> PolicyFigures:
    """Return the mean figures over the loads."""
    rows = []
    for load in loads:
        total = summary(simulate(load.prompts, load.lengths, rules, packing.memory, packing.steps))
        unfinished = total.dropped / max(total.dropped + total.finished, 1)
        figures = total.completion, total.p99, total.tokens_per_second, total.recomputed, total.preemptions, total.batch
        rows.append((*figures, unfinished))
    return PolicyFigures(str(rules.policy), rules.safety, rules.reorder_patience, *np.mean(rows, axis=0).tolist())


def choose(
    packing: Packing, context: int, config: PlanConfig, reference: ReferenceConfig, progress: Progress = silent
) -> Choice:
    """Choose level and patience by replays with a seed that the gate does not use; `packing` is complete but for them."""
    loads = [reference_load(packing, context, capacity(packing), SEED, reference)]
    total = len(config.levels) * len(config.patience) + len(COMPARED) - 1
    paged = simulate_policy(packing, rules_of(packing, context, "paged"), loads)
    progress(1, total)
    tried = []
    for level, patience in product(config.levels, config.patience):
        rules = rules_of(replace(packing, level=level, patience=patience), context)
        tried.append(simulate_policy(packing, rules, loads))
        progress(len(tried) + 1, total)
    best = min(tried, key=lambda figures: (excess(figures, paged, config), figures.mean))
    others = tuple(
        simulate_policy(packing, rules_of(packing, context, policy), loads) for policy in COMPARED if policy not in SEEN
    )
    progress(total, total)
    return Choice(best.level, best.patience, excess(best, paged, config) <= 0, tuple(tried), (best, paged, *others))


SEED = 1_000_003  # of the load that parameters are chosen by
SEEN = ("default", "paged")


def excess(figures: PolicyFigures, paged: PolicyFigures, config: PlanConfig) -> float:
    """Return by how much the limits are missed, as shares of them; 0 where they hold."""
    over = figures.recomputed - config.recomputed
    late = figures.p99 / max(config.tail * paged.p99, 1e-12) - 1
    return max(over, 0.0) + max(late, 0.0)


def describe(choice: Choice) -> str:
    """Return a sentence for people: the plan's figures, said to be simulated, beside on-demand paging."""
    best, paged = choice.policies[0], choice.policies[1]
    missed = "" if choice.within else "; no pair of the grid keeps the plan's limits"
    return (
        f"simulated on the measured steps, a request of the reference workload takes {1000 * best.mean:.0f} ms on average "
        f"(on-demand paging {1000 * paged.mean:.0f} ms), p99 {1000 * best.p99:.0f} ms ({1000 * paged.p99:.0f} ms), "
        f"{best.recomputed:.1%} of the tokens computed again ({paged.recomputed:.1%}){missed}"
    )


logger = logging.getLogger("pliant.flows")

WAIT = 0.05  # seconds that a service waits for a forecast by default (PLIANT_PREDICT_LIMIT)


@dataclass(frozen=True, slots=True)
class Pace:
    """`alone`: seconds until one prompt is forecast. `engine`: requests a second that the engine serves at most."""

    alone: float
    prompts_per_second: float
    engine: float

    @property
    def keeps_up(self) -> bool:
        """Whether forecasts come in time at every rate that the engine serves."""
        return self.alone < WAIT and self.prompts_per_second > self.engine

    def describe(self) -> str:
        """Return a sentence for people."""
        figures = (
            f"the predictor forecasts {self.prompts_per_second:.0f} prompts/s, one alone in {1000 * self.alone:.1f} ms; "
            f"the engine serves at most {self.engine:.1f} requests/s"
        )
        if self.keeps_up:
            return figures
        return f"{figures}: many forecasts will be late, so choose a smaller encoder, or serve the predictor on a GPU"

    def metrics(self) -> dict[str, float]:
        return {f"pace.{name}": value for name, value in asdict(self).items()}


def measure_pace(predictor: Predictor, prompts: Sequence[str], packing: Packing, device: str) -> Pace:
    """Measure the predictor on the device. A predictor that does not keep up is served nevertheless, with a warning."""
    measured = pace.measure(predictor, prompts, device)
    result = Pace(measured.alone, measured.prompts_per_second, capacity(packing))
    if not result.keeps_up:
        logger.warning("%s: %s", packing.name, result.describe())
    return result
