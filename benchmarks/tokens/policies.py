"""All policies and the bound on the same loads in the simulator: on the paper's ground and on a measured profile.

Every job is one (ground, workload, load, seed, policy); jobs run in processes of their own. Nothing here is measured on a
device but the profile of the ground "measured"; what is assumed of the paper's ground is told in pliant/tokens/published.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.jobs import run_all
from benchmarks.places import SHARED
from benchmarks.results import Target
from pliant.errors import InputError
from pliant.progress import Progress, silent
from pliant.protocol import Request
from pliant.report import batch_accuracies, report
from pliant.simulator import simulate
from pliant.tokens import published
from pliant.tokens.bound import Devices, fluid
from pliant.tokens.policies import CHOICES, POLICIES, make
from pliant.tokens.policy import Knowledge
from pliant.tokens.scheduler import Options
from pliant.tokens.simulated import SimulatedDevice

AZURE = SHARED / "traces" / "azure_functions_2019_per_minute.parquet"
BOUND = "bound"
PLAIN = "gamma 0"  # our scheduling without adaptation: tells what each of the two brings
COLUMNS = ("default", PLAIN, *(policy for policy in POLICIES if policy != "default"))
LOADS = (1.0, 1.5, 2.0, 3.0)
QUANTILES = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)


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
    """What one policy earned. `batch_accuracy`: quantiles (QUANTILES) over batches of the share answered correctly."""

    ground: str
    workload: str
    load: float
    seed: int
    policy: str
    gamma: int | None
    requests: int
    utility: float
    outcomes: Mapping[str, int]
    settings: Mapping[int, int]
    batch: float
    p50: float
    p98: float
    p99: float
    batch_accuracy: tuple[float, ...]


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
        load = published.compressed(_azure()[: int(2 * job.seconds)], scale, job.seed)
    else:
        load = published.synthetic(scale, job.seed, published.SyntheticConfig(seconds=job.seconds))
    names = dict(zip(published.ACCURACY, cycle(job.ground.knowledge.accuracy), strict=False))
    return [Request(r.id, r.arrival, r.deadline, names[r.task], r.utility) for r in load]


def _azure() -> list[float]:
    import pandas

    table = pandas.read_parquet(AZURE)
    counts = table.groupby("minute")["invocations"].sum()
    return [float(counts.get(minute, 0)) for minute in range(1, 1441)]


def run(job: Job) -> Row:
    """Simulate one policy, or find the fluid bound."""
    load = requests_of(job)
    knowledge = job.ground.variants if job.policy == "infaas" else job.ground.knowledge
    if knowledge is None:
        raise InputError("ground", job.ground.name, "one with variants, for infaas")
    if job.policy == BOUND:
        bound = fluid(load, Devices(knowledge.latency, knowledge.accuracy))
        settings = {g: round(sum(s.get(g, 0) for s in bound.served.values())) for g in knowledge.latency.settings}
        return _row(job, len(load), utility=bound.utility, settings=settings)
    rng = np.random.default_rng(job.seed)
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, rng, loading=knowledge.loading)
    # No way back to a caller here, so no margin: for every policy alike.
    policy, gamma = ("default", 0) if job.policy == PLAIN else (job.policy, job.gamma)
    scheduler = make(policy, knowledge, gamma=gamma, options=Options(margin=0.0))
    journal = simulate(scheduler, load, device)
    summary, accuracies = report(journal), batch_accuracies(journal)
    names = ("utility", "outcomes", "settings", "batch", "p50", "p98", "p99")
    spread = tuple(float(q) for q in np.quantile(accuracies, QUANTILES)) if accuracies else ()
    return _row(job, len(load), batch_accuracy=spread, **{name: getattr(summary, name) for name in names})


def _row(job: Job, count: int, **figures: Any) -> Row:
    nan = float("nan")
    blank = {"outcomes": {}, "settings": {}, "batch": nan, "p50": nan, "p98": nan, "p99": nan, "batch_accuracy": ()}
    where = (job.ground.name, job.workload, job.load, job.seed, job.policy, job.gamma, count)
    return Row(*where, **{**blank, **figures})


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


def jobs(setting: Setting, where: Sequence[Ground]) -> Iterator[Job]:
    """Give the longest first, so that no process is left alone with one at the end."""
    for load in sorted(LOADS, reverse=True):
        for ground in where:
            seeds = setting.seeds if ground.name == "figure 4b" else 1
            for seed in range(seeds):
                yield from _jobs(ground, "synthetic", load, seed, setting)
            if AZURE.is_file() and setting.azure_seconds:
                yield from _jobs(ground, "azure", load, 0, setting)


def _jobs(ground: Ground, workload: str, load: float, seed: int, setting: Setting) -> Iterator[Job]:
    seconds = setting.azure_seconds if workload == "azure" else setting.seconds
    for policy in (BOUND, *setting.policies):
        if (seed > 0 and policy not in (BOUND, "default", "otas")) or (policy == "infaas" and not ground.variants):
            continue
        for gamma in _gammas(policy, ground, setting):
            yield Job(ground, workload, load, seed, policy, seconds, gamma)


def _gammas(policy: str, ground: Ground, setting: Setting) -> list[int | None]:
    """Return the one that a policy keeps to, all that it may keep to in a sweep, or None where it chooses for itself."""
    known, choice = ground.knowledge.latency.settings, CHOICES.get(policy)
    if setting.sweep and choice is not None and choice.gamma:
        return [gamma for gamma in known if choice.allows(gamma)]
    return [fixed(policy, known)]


def fixed(policy: str, known: Sequence[int]) -> int | None:
    """Return the gamma that `tome` or `vpt` keeps to: of those measured the nearest to its own; None for other policies."""
    choice = CHOICES.get(policy)
    if choice is None or not choice.gamma:
        return None
    own = choice.gamma
    return min(filter(choice.allows, known), key=lambda gamma: abs(gamma - own), default=own)


def compare(setting: Setting, where: Sequence[Ground], progress: Progress = silent) -> list[Row]:
    """Run every job, over as many processes as there are cores."""
    rows = run_all(run, list(jobs(setting, where)), os.cpu_count() or 1, progress)
    return sorted(rows, key=lambda r: (r.ground, r.workload, r.load, r.seed, r.policy, r.gamma or 0))


Place = tuple[str, str]
"""Ground and workload."""

PUBLISHED: Place = ("figure 4b", "synthetic")


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


def places(rows: Sequence[Row]) -> list[Place]:
    return sorted({(r.ground, r.workload) for r in rows})


def table(rows: Sequence[Row], place: Place) -> list[tuple[str, ...]]:
    """Return percents of the fluid bound by load, one column a policy (first seed)."""
    lines = []
    for load in LOADS:
        shares = [ratio(rows, policy, BOUND, load, place=place) for policy in COLUMNS]
        lines.append((f"{load:g}x", *("-" if np.isnan(s) else f"{100 * s:.1f}" for s in shares)))
    return lines


HEADINGS = ("load", *COLUMNS)


LEFT_OUT = ("outcomes", "settings", "batch_accuracy")  # of the results' file: what became of every request


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows for the results' file."""
    return [{name: value for name, value in asdict(row).items() if name not in LEFT_OUT} for row in rows]
