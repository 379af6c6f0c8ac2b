"""All policies and the bound on the same loads in the simulator, on the device profile of the paper's Figure 4b.

Every job is one load, seed and policy; jobs run in processes of their own. Nothing here is measured on a device; what is
assumed of the paper's ground is told in pliant/tokens/published.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import CHOICES, POLICIES, make
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice

BOUND = "bound"
PLAIN = "gamma 0"  # our scheduling without adaptation: tells what each of the two brings
COLUMNS = ("default", PLAIN, *(policy for policy in POLICIES if policy != "default"))
LOADS = (1.0, 1.5, 2.0, 3.0)
SEEDED = (BOUND, "default", "otas")
"""What all seeds go through; the first alone goes through the others."""


@dataclass(frozen=True, slots=True)
class Job:
    load: float
    seed: int
    policy: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy earned; times in seconds, NaN for the bound."""

    load: float
    seed: int
    policy: str
    requests: int
    utility: float
    batch: float = float("nan")
    p50: float = float("nan")
    p99: float = float("nan")


@dataclass(frozen=True, slots=True)
class Setting:
    """How much to simulate."""

    seconds: float = 40.0
    seeds: int = 5
    policies: tuple[str, ...] = COLUMNS


QUICK, FULL = Setting(), Setting(seconds=1800.0)
SMALLEST = Setting(seeds=1, policies=("default", "otas"))


def policies(context: Context) -> Measured:
    """Compare all policies with each other and with the bound."""
    with context.stage("policies in the simulator") as progress:
        every = jobs(context.choose(QUICK, FULL, SMALLEST))
        rows = sorted(run_all(run, every, os.cpu_count() or 1, progress), key=lambda row: (row.load, row.seed))
    lines = [
        (f"{load:g}x", *(f"{100 * share:.1f}" for policy in COLUMNS for share in [ratio(rows, policy, BOUND, load)]))
        for load in LOADS
    ]
    harness.table("percent of the fluid bound, the first seed", ("load", *COLUMNS), lines)
    return targets(rows), {"rows": [asdict(row) for row in rows]}


def jobs(setting: Setting) -> list[Job]:
    """Return the longest first, so that no process is left alone with one at the end."""
    return [
        Job(load, seed, policy, setting.seconds)
        for load in sorted(LOADS, reverse=True)
        for seed in range(setting.seeds)
        for policy in (BOUND, *setting.policies)
        if seed == 0 or policy in SEEDED
    ]


def run(job: Job) -> Row:
    """Simulate one policy, or find the fluid bound; the load is the same for every policy."""
    load = published.synthetic(job.load, job.seed, published.SyntheticConfig(seconds=job.seconds))
    known = (published.variants if job.policy == "infaas" else published.profile)(published.FIGURE_4B)
    where = (job.load, job.seed, job.policy, len(load))
    if job.policy == BOUND:
        return Row(*where, fluid(load, Devices(known.latency, known.accuracy)).utility)
    rng = np.random.default_rng(job.seed)
    device = SimulatedDevice(known.latency, known.accuracy, load, rng, loading=known.loading)
    policy, gamma = ("default", 0) if job.policy == PLAIN else (job.policy, None)
    if (choice := CHOICES.get(policy)) is not None and choice.gamma:  # `tome` or `vpt`, which keep to one
        own, allowed = choice.gamma, [each for each in known.latency.settings if choice.allows(each)]
        gamma = min(allowed, key=lambda gamma: abs(gamma - own), default=own)
    # No way back to a caller here, so no margin: for every policy alike.
    earned = report(simulate(make(policy, known, gamma=gamma, options=Options(margin=0.0)), load, device))
    return Row(*where, earned.utility, earned.batch, earned.p50, earned.p99)


def ratio(rows: Sequence[Row], policy: str, other: str, load: float, seed: int = 0) -> float:
    """Return what a policy earned over what another did on the same requests; NaN where one is missing."""
    earned = {row.policy: row.utility for row in rows if (row.load, row.seed) == (load, seed)}
    rival = earned.get(other, 0.0)
    return earned.get(policy, float("nan")) / rival if rival > 0 else float("nan")


def targets(rows: Sequence[Row]) -> list[Target]:
    seeds = sorted({row.seed for row in rows})

    def each(other: str, *loads: float) -> list[float]:
        return [ratio(rows, "default", other, load, seed) for load in loads for seed in seeds]

    return [
        Target("default over otas at 2x, mean of seeds", float(np.mean(each("otas", 2.0))), ">=", 1.08, "x"),
        Target("default over otas at 3x, mean of seeds", float(np.mean(each("otas", 3.0))), ">=", 1.7, "x"),
        Target("default over otas, least of all loads and seeds", min(each("otas", *LOADS)), ">=", 1.0, "x"),
        Target("default, share of the fluid bound at 1x to 2x, least", min(each(BOUND, *LOADS[:3])), ">=", 0.95),
        Target("otas over pets at 1x", ratio(rows, "otas", "pets", 1.0), ">=", 1.18, "x"),
        Target("otas over infaas at 1x", ratio(rows, "otas", "infaas", 1.0), ">=", 1.0, "x"),
    ]
