"""All policies and the bound on the same loads in the simulator: the device profile of the paper's Figure 4b, and an H200.

Every job is one load, seed and policy; jobs run in processes of their own. Nothing here is measured on a device; what is
assumed of the paper's ground is told in pliant/tokens/published.py. Utilities are expected ones: an answer in time counts
with the accuracy of its gamma, whether it happened to be right or not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.benchmarks.tokens.grounds import CPU, GPU, GROUNDS
from pliant.report import observations, summarise
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import CHOICES, POLICIES, make
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice

BOUND = "bound"
PLAIN = "gamma 0"  # our scheduling without adaptation: tells what each of the two brings
COLUMNS = ("default", PLAIN, *(policy for policy in POLICIES if policy != "default"))
SEEDED = (BOUND, "default", "attainment", "otas", "otas-at-once", "slackfit")
"""What all seeds go through; the first alone goes through the others."""


@dataclass(frozen=True, slots=True)
class Job:
    ground: str
    load: str
    seed: int
    policy: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy earned; times in seconds. Of the bound the most utility, and the greatest share in time; else NaN."""

    ground: str
    load: str
    seed: int
    policy: str
    requests: int
    utility: float
    attainment: float  # share of the requests answered in time
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
        rows = sorted(
            run_all(run, every, os.cpu_count() or 1, progress), key=lambda row: (row.ground, row.load, row.seed)
        )
    for name, ground in GROUNDS.items():
        lines = [(policy, *(cell(rows, policy, name, load) for load in ground.loads)) for policy in (BOUND, *COLUMNS)]
        title = f"{name}: utility in percent of the fluid bound, requests in time in percent of all, the first seed"
        harness.table(title, ("policy", *ground.loads), lines)
    return targets(rows), {"rows": [asdict(row) for row in rows]}


def cell(rows: Sequence[Row], policy: str, ground: str, load: str) -> str:
    utility = ratio(rows, policy, BOUND, (ground, load))
    in_time = [
        row.attainment for row in rows if (row.ground, row.load, row.seed, row.policy) == (ground, load, 0, policy)
    ]
    return f"{100 * utility:.1f}, {100 * in_time[0]:.1f}" if in_time else ""


def jobs(setting: Setting) -> list[Job]:
    """Return the longest first, so that no process is left alone with one at the end; the GPU has no models to switch."""
    return [
        Job(name, load, seed, policy, setting.seconds)
        for name, ground in reversed(GROUNDS.items())
        for load in reversed(list(ground.loads))
        for seed in range(setting.seeds)
        for policy in (BOUND, *setting.policies)
        if (seed == 0 or policy in SEEDED) and (name, policy) != (GPU, "infaas")
    ]


def run(job: Job) -> Row:
    """Simulate one policy, or find the fluid bound; the load is the same for every policy."""
    ground = GROUNDS[job.ground]
    load, known = ground.loads[job.load](job.seed, job.seconds), ground.known
    if job.policy == "infaas":
        known = published.variants(published.FIGURE_4B)
    where = (job.ground, job.load, job.seed, job.policy, len(load))
    if job.policy == BOUND:
        certain = {task: dict.fromkeys(shares, 1.0) for task, shares in known.accuracy.items()}
        alike = [replace(request, utility=1.0) for request in load]
        answered = fluid(alike, Devices(known.latency, certain), ground.width).utility / len(load)
        return Row(*where, fluid(load, Devices(known.latency, known.accuracy), ground.width).utility, answered)
    rng = np.random.default_rng(job.seed)
    device = SimulatedDevice(known.latency, known.accuracy, load, rng, loading=known.loading)
    policy, gamma = ("default", 0) if job.policy == PLAIN else (job.policy, None)
    if (choice := CHOICES.get(policy)) is not None and choice.gamma:  # `tome` or `vpt`, which keep to one
        own, allowed = choice.gamma, [each for each in known.latency.settings if choice.allows(each)]
        gamma = min(allowed, key=lambda gamma: abs(gamma - own), default=own)
    # No way back to a caller here, so no margin: for every policy alike.
    seen = observations(simulate(make(policy, known, gamma=gamma, options=Options(margin=0.0)), load, device))
    utility = sum(
        o.request.utility * known.accuracy[o.request.task][o.setting]
        for o in seen
        if o.setting is not None and o.outcome in ("accurate", "wrong")
    )
    figures = summarise(seen)
    return Row(*where, utility, figures.attainment, figures.batch, figures.p50, figures.p99)


def ratio(
    rows: Sequence[Row], policy: str, other: str, where: tuple[str, str], seed: int = 0, figure: str = "utility"
) -> float:
    """Return a figure of a policy over that of another on the same requests; NaN where one is missing."""
    figures = {row.policy: getattr(row, figure) for row in rows if (row.ground, row.load, row.seed) == (*where, seed)}
    rival = figures.get(other, 0.0)
    return figures.get(policy, float("nan")) / rival if rival > 0 else float("nan")


def targets(rows: Sequence[Row]) -> list[Target]:
    seeds = sorted({row.seed for row in rows})
    everywhere = [(name, load) for name, ground in GROUNDS.items() for load in ground.loads]
    overloads = [where for where in everywhere if where != (CPU, "1x")]

    def each(
        other: str,
        *where: tuple[str, str],
        policy: str = "default",
        figure: str = "utility",
        over: Sequence[int] = seeds,
    ) -> list[float]:
        return [ratio(rows, policy, other, place, seed, figure) for place in where for seed in over]

    def least(*ratios: float) -> float:
        return float(np.min(ratios))

    twice, thrice = each("otas", (CPU, "2x")), each("otas", (CPU, "3x"))
    own = [each(BOUND, (CPU, load)) for load in ("1x", "1.5x", "2x")]
    steady, burst = each(BOUND, (GPU, "1.5x")), each(BOUND, (GPU, "burst"))
    at_once, slackfit = each("otas-at-once", *everywhere), each("slackfit", *overloads)
    in_time = {
        other: each(other, *overloads, policy="attainment", figure="attainment")
        for other in (BOUND, "default", "otas", "otas-at-once", "slackfit")
    }
    return [
        Target("default over otas at 2x, mean of seeds", float(np.mean(twice)), ">=", 1.08, "x"),
        Target("default over otas at 3x, mean of seeds", float(np.mean(thrice)), ">=", 1.7, "x"),
        Target("default over otas, least of all loads and seeds", least(*each("otas", *everywhere)), ">=", 1.0, "x"),
        Target("default, share of the fluid bound at 1x to 2x, least", least(*own[0], *own[1], *own[2]), ">=", 0.98),
        Target("otas over pets at 1x", ratio(rows, "otas", "pets", (CPU, "1x")), ">=", 1.18, "x"),
        Target("otas over infaas at 1x", ratio(rows, "otas", "infaas", (CPU, "1x")), ">=", 1.0, "x"),
        Target("H200, 1.5x for 2 s: default over the bound, median of seeds", float(np.median(steady)), ">=", 0.95),
        Target("H200, 1.5x for 2 s: default over the bound, least", least(*steady), ">=", 0.95),
        Target("H200, a burst of 0.3 s: default over the bound, median of seeds", float(np.median(burst)), ">=", 0.88),
        Target("H200, a burst of 0.3 s: default over the bound, least", least(*burst), ">=", 0.88),
        Target("default over otas without settling, least everywhere", least(*at_once), ">=", 1.0, "x"),
        Target("default over SlackFit, least of all overloads", least(*slackfit), ">=", 1.0, "x"),
        Target("in time: attainment over default, least of all overloads", least(*in_time["default"]), ">=", 0.99, "x"),
        Target("in time: attainment over its bound, median of overloads", float(np.median(in_time[BOUND])), ">=", 0.95),
        Target(
            "in time: attainment over the best of the others, least of all overloads",
            least(*np.min([in_time[other] for other in ("otas", "otas-at-once", "slackfit")], axis=0)),
            ">=",
            0.98,
            "x",
        ),
    ]
