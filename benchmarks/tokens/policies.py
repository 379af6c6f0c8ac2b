"""All policies and the bound on the same loads in the simulator: on the paper's ground and on a measured profile.

Every job is one (ground, workload, load, seed, policy); jobs run in processes of their own. Nothing here is measured on a
device but the profile of the ground "measured"; what is assumed of the paper's ground is told in pliant/tokens/published.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, product

import numpy as np
from rich.console import Console

from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.places import SHARED
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.flows import settings
from pliant.flows.tokens.champions import load_champion
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import report
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import CHOICES, POLICIES, make
from pliant.tokens.scheduler import Knowledge, Options
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from pliant.tokens.simulated import SimulatedDevice

AZURE = SHARED / "traces" / "azure_functions_2019_per_minute.parquet"
BOUND = "bound"
PLAIN = "gamma 0"  # our scheduling without adaptation: tells what each of the two brings
COLUMNS = ("default", PLAIN, *(policy for policy in POLICIES if policy != "default"))
LOADS = (1.0, 1.5, 2.0, 3.0)
OUTCOMES = {"accurate": "#3a7d44", "wrong": "#e3b23c", "late": "#c1440e", "evicted": "#9a9a9a"}


@dataclass(frozen=True, slots=True)
class Ground:
    """A device and tasks that the policies are compared on; `variants` are what infaas switches between, if any."""

    name: str
    knowledge: Knowledge
    variants: Knowledge | None = None
    mean: float = 350.0  # requests/s at load 1


@dataclass(frozen=True, slots=True)
class Job:
    ground: Ground
    workload: str  # synthetic or azure
    load: float
    seed: int
    policy: str
    seconds: float  # of the synthetic workload; the trace's first seconds
    gamma: int | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """What one policy earned; times in seconds. `outcomes`: how many requests ended how, empty for the bound."""

    ground: str
    workload: str
    load: float
    seed: int
    policy: str
    gamma: int | None
    requests: int
    utility: float
    outcomes: dict[str, int]
    batch: float = float("nan")
    p50: float = float("nan")
    p98: float = float("nan")
    p99: float = float("nan")


@dataclass(frozen=True, slots=True)
class Setting:
    """How much to simulate. All seeds go through default and otas, the first alone through the others; 0: not Azure's."""

    seconds: float = 40.0
    azure_seconds: float = 30.0
    seeds: int = 5
    sweep: bool = False  # every gamma for tome and vpt, the best of which counts
    policies: tuple[str, ...] = COLUMNS


QUICK, FULL = Setting(), Setting(seconds=1800.0, azure_seconds=720.0, sweep=True)
SMALLEST = Setting(azure_seconds=0.0, seeds=1, policies=("default", "otas"))

Place = tuple[str, str]
"""Ground and workload."""
PUBLISHED: Place = ("figure 4b", "synthetic")


def policies(context: Context) -> Measured:
    """Compare on the paper's grounds, and on the champion's profile where there is one."""
    bundle = None if context.smallest else load_champion(settings.read())
    where = grounds(tokens_knowledge(bundle.profile, bundle.tasks) if bundle else None)
    with context.stage("policies in the simulator") as progress:
        setting = context.choose(QUICK, FULL, SMALLEST)
        rows = compare(setting, where[:1] if context.smallest else where, progress)
    for place in sorted({(row.ground, row.workload) for row in rows}):
        title = f"percent of the fluid bound: profile {place[0]}, {place[1]} workload"
        harness.table(title, ("load", *COLUMNS), table(rows, place))
    if not (bundle or context.smallest):
        Console().print("Not compared: on a profile measured here, which needs a champion (pliant train tokens).")
    return targets(rows), {"rows": [{k: v for k, v in asdict(row).items() if k != "outcomes"} for row in rows]}


def grounds(measured: Knowledge | None) -> list[Ground]:
    """Return the paper's device by Figure 4b and by Table I, and a measured profile, at the same share of its capacity."""
    tables = (("figure 4b", published.FIGURE_4B), ("table I", published.TABLE_I))
    every = [Ground(name, published.profile(t), published.variants(t)) for name, t in tables]
    if measured is not None:
        share = 350.0 / published.FIGURE_4B[0]
        every.append(Ground("measured", measured, mean=share * measured.latency.throughput(0, 64)))
    return every


def requests_of(job: Job) -> list[Request]:
    """Return the load, the same for every policy. Tasks of another ground take the paper's kinds in turn."""
    scale = job.load * job.ground.mean / 350.0
    if job.workload == "azure":
        import pandas

        counts = pandas.read_parquet(AZURE).groupby("minute")["invocations"].sum()
        minutes = [float(counts.get(minute, 0)) for minute in range(1, 1441)]
        load = published.compressed(minutes[: int(2 * job.seconds)], scale, job.seed)
    else:
        load = published.synthetic(scale, job.seed, published.SyntheticConfig(seconds=job.seconds))
    names = dict(zip(published.ACCURACY, cycle(job.ground.knowledge.accuracy), strict=False))
    return [Request(r.id, r.arrival, r.deadline, names[r.task], r.utility) for r in load]


def run(job: Job) -> Row:
    """Simulate one policy, or find the fluid bound."""
    load = requests_of(job)
    knowledge = job.ground.variants if job.policy == "infaas" else job.ground.knowledge
    assert knowledge is not None, "infaas has no job on a ground without variants"
    where = (job.ground.name, job.workload, job.load, job.seed, job.policy, job.gamma, len(load))
    if job.policy == BOUND:
        return Row(*where, fluid(load, Devices(knowledge.latency, knowledge.accuracy)).utility, {})
    rng = np.random.default_rng(job.seed)
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, rng, loading=knowledge.loading)
    # No way back to a caller here, so no margin: for every policy alike.
    policy, gamma = ("default", 0) if job.policy == PLAIN else (job.policy, job.gamma)
    earned = report(simulate(make(policy, knowledge, gamma=gamma, options=Options(margin=0.0)), load, device))
    return Row(*where, earned.utility, dict(earned.outcomes), earned.batch, earned.p50, earned.p98, earned.p99)


def jobs(setting: Setting, where: Sequence[Ground]) -> Iterator[Job]:
    """Give the longest first, so that no process is left alone with one at the end."""
    for load in sorted(LOADS, reverse=True):
        for ground in where:
            count = setting.seeds if ground.name == PUBLISHED[0] else 1
            loads = [("synthetic", seed, setting.seconds) for seed in range(count)]
            if AZURE.is_file() and setting.azure_seconds:
                loads.append(("azure", 0, setting.azure_seconds))
            for (workload, seed, seconds), policy in product(loads, (BOUND, *setting.policies)):
                if (seed > 0 and policy not in (BOUND, "default", "otas")) or (
                    policy == "infaas" and not ground.variants
                ):
                    continue
                gammas: list[int | None] = [None]
                if (choice := CHOICES.get(policy)) is not None and choice.gamma:  # `tome` or `vpt`, which keep to one
                    own, known = choice.gamma, [g for g in ground.knowledge.latency.settings if choice.allows(g)]
                    nearest = min(known, key=lambda gamma: abs(gamma - own), default=own)
                    gammas = [*known] if setting.sweep else [nearest]
                for gamma in gammas:
                    yield Job(ground, workload, load, seed, policy, seconds, gamma)


def compare(setting: Setting, where: Sequence[Ground], progress: Progress = silent) -> list[Row]:
    """Run every job, over as many processes as there are cores."""
    rows = run_all(run, list(jobs(setting, where)), os.cpu_count() or 1, progress)
    return sorted(rows, key=lambda r: (r.ground, r.workload, r.load, r.seed, r.policy, r.gamma or 0))


def best(rows: Sequence[Row], policy: str, load: float, seed: int = 0, place: Place = PUBLISHED) -> Row | None:
    """Return the row of a policy (at its best gamma where several were tried)."""
    wanted = (*place, policy, load, seed)
    matching = [r for r in rows if (r.ground, r.workload, r.policy, r.load, r.seed) == wanted]
    return max(matching, key=lambda r: r.utility, default=None)


def ratio(rows: Sequence[Row], policy: str, other: str, load: float, seed: int = 0, place: Place = PUBLISHED) -> float:
    """Return what a policy earned over what another did on the same requests; NaN where one is missing."""
    own, rival = best(rows, policy, load, seed, place), best(rows, other, load, seed, place)
    return own.utility / rival.utility if own and rival and rival.utility > 0 else float("nan")


def targets(rows: Sequence[Row]) -> list[Target]:
    """Return the simulator's targets, on the paper's profile by Figure 4b and its synthetic workload."""
    seeds = sorted({r.seed for r in rows})

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


def table(rows: Sequence[Row], place: Place) -> list[tuple[str, ...]]:
    """Return percents of the fluid bound by load, one column a policy (first seed)."""
    lines = []
    for load in LOADS:
        shares = [ratio(rows, policy, BOUND, load, place=place) for policy in COLUMNS]
        lines.append((f"{load:g}x", *("-" if np.isnan(s) else f"{100 * s:.1f}" for s in shares)))
    return lines
