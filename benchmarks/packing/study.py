"""All policies on the same requests in the simulator: published models on published devices, recorded lengths.

A job is one load served by one policy. "Throughput" is requests over the makespan: seconds from the first arrival to the
last end of a finite load, which every policy has to serve to its last request. Nothing here is measured on a device: an
iteration lasts what benchmarks/packing/hardware.py says of the device's bandwidth and arithmetic.

The targets are taken with both of the A100's published peaks, of bandwidth and of arithmetic (a roofline; S3 takes
generation for bound by memory). With 60% of the arithmetic a 13B model bears 50 requests/s under any policy: at 90 all that
a policy can then do is to order a queue. What remains of the ratios there is shown beside them. The worst seed counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median

import numpy as np
from matplotlib.figure import Figure

from pliant.benchmarks import harness
from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing import forecasts, traces, vicuna
from pliant.benchmarks.packing.forecasts import Foretold, by_prompt
from pliant.benchmarks.packing.hardware import A100, LLAMA_13B, LLAMA_33B, Accelerator, LargeModel, Roofline, memory_of
from pliant.benchmarks.packing.traces import Load, as_recorded, at_once, at_rate
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import Run, simulate, summary

SLO = 0.1875  # seconds a token: an average reader's speed (S3, section 5.1)
HOST_BYTES = 128e9
LONG_CONTEXT = 16_384  # tokens, where prompts are recorded ones
RATE = 90.0  # requests/s
PEAK = replace(A100, efficiency=1.0)
SHORT_OF_PEAK = replace(A100, efficiency=0.6)
SHARES = (0.8, 1.1)  # of what the device bears, in the loads of the other traces
PEAK_13B, PEAK_33B, SLOWER, NO_HOST = "13B", "33B", "13B at 60% of the arithmetic", "13B without the host's memory"
RATIOS = ("rate / s3", "mean / oracle", "rate / oracle", "p99 / paged")
VERDICTS = ("", "mean below s3", *RATIOS, "recomputed", "batch / s3")
SHOWN = {
    PEAK_13B: "Vicuna, 90/s",
    "13B, offline": "Vicuna, 3,000 at once",
    "13B, azure at 110% of what it bears": "Azure, 110%",
    "13B, sharegpt at 110% of what it bears": "ShareGPT, 110%",
    "13B, mooncake at 110% of what it bears": "Mooncake, 110%",
}
COLOURS = {"default": "#1b6ca8", "paged": "#7fb2d6", "s3": "#e08e0b", "oracle": "#777777"}
HEADINGS = (
    *("policy", "requests/s", "tokens/s", "mean s", "p50 s", "p99 s", "s/token", "in SLO", "preempted", "recomputed"),
    *("moved", "batch"),
)


@dataclass(frozen=True, slots=True)
class Ground:
    """A model on its devices."""

    name: str
    memory: Memory
    steps: IterationCost


def large(model: LargeModel, device: Accelerator = A100, host_bytes: float = HOST_BYTES) -> Ground:
    """Return a published model alone on one device, with so much memory of the host for what is preempted."""
    return Ground(model.name, memory_of(model, device, host_bytes=host_bytes), Roofline(model, device))


@dataclass(frozen=True)
class Job:
    ground: Ground
    load: Load
    foretold: Foretold
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds from arrival to the last token: mean, p50, p99. `token`: mean seconds a token once it runs."""

    model: str
    load: str
    policy: str
    seed: int
    requests: int
    seconds: float  # makespan
    rate: float  # requests/s
    tokens: float  # of outputs, a second
    mean: float
    p50: float
    p99: float
    token: float
    within: float  # share of the requests that took at most SLO a token from their arrival on
    preemptions: float  # a request
    recomputed: float  # tokens that were read again, over all that were read or made
    swapped: float  # tokens moved to the host, over the same
    batch: float  # mean sequences an iteration
    level: float  # of confidence, at the end

    def cells(self) -> tuple[str, ...]:
        seconds = (f"{x:.2f}" for x in (self.mean, self.p50, self.p99))
        shares = (f"{100 * x:.1f}%" for x in (self.within, self.preemptions, self.recomputed, self.swapped))
        speed = f"{self.rate:.2f}", f"{self.tokens:,.0f}"
        return self.policy, *speed, *seconds, f"{self.token:.3f}", *shares, f"{self.batch:.1f}"


def serve(job: Job) -> Row:
    """Serve one job, in virtual time."""
    requests = prompts(job.load, job.foretold)
    rules = Rules(job.policy, job.foretold.context, cost=job.ground.steps)
    lengths = {prompt.id: prompt.exact for prompt in requests}
    return row(job, simulate(requests, lengths, rules, job.ground.memory, job.ground.steps))


def prompts(load: Load, foretold: Foretold) -> list[Prompt]:
    """Return the load's requests with what was forecast for their rows; `exact` is for the policy that knows it."""
    of = foretold.lengths
    requests = []
    for number, (at, place) in enumerate(zip(load.arrivals.tolist(), load.rows.tolist(), strict=True)):
        tokens, exact = int(of.prompt[place]), int(of.output[place])
        limit = min(foretold.limit, foretold.context - tokens)
        forecast, bucket = tuple(foretold.forecasts_NL[place].tolist()), int(foretold.buckets[place])
        requests.append(Prompt(number, at, tokens, limit, forecast, bucket, offline=load.offline, exact=exact))
    return requests


def row(job: Job, run: Run) -> Row:
    """Return what a run comes to."""
    total, prompts = summary(run), sum(fate.prompt for fate in run.fates)
    slow = [fate.ended - fate.arrival > SLO * fate.generated for fate in run.fates]
    speed = run.seconds, total.sequences_per_second, total.tokens_per_second
    seconds = total.completion, total.p50, total.p99, total.per_token
    preempted = total.preemptions / total.finished, total.recomputed
    moved = run.swapped / (run.generated + prompts + run.recomputed)
    shares = 1 - sum(slow) / len(slow), *preempted, moved
    where = job.ground.name, job.load.name, job.policy, job.seed, total.finished
    return Row(*where, *speed, *seconds, *shares, total.batch, run.safety)


def capacity(ground: Ground, foretold: Foretold) -> float:
    """Return the requests a second that the device bears with its cache full of sequences, each as far as on average."""
    prompt, output = (x.astype(float) for x in (foretold.lengths.prompt, foretold.lengths.output))
    held = float((prompt * output + output**2 / 2).sum() / output.sum())  # tokens of one sequence, over time
    memory, steps = ground.memory, ground.steps
    batch = int(min(max(memory.pages * memory.page_tokens / held, 1), memory.sequences, memory.step_tokens))
    iteration = float(steps.seconds(batch, batch, int(batch * held)))
    read = float(steps.seconds(batch + int(prompt.mean()), batch, int(batch * held))) - iteration
    return 1 / (float(output.mean()) * iteration / batch + max(read, 0.0))


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """Times in seconds of arrivals."""

    seeds: tuple[int, ...] = (0, 1, 2)
    seconds: float = 60.0
    others: float = 200.0  # of the other traces
    offline: int = 3000
    processes: int = 2


QUICK = StudyConfig()
FULL = StudyConfig(seeds=(0, 1, 2, 3, 4), seconds=300.0, others=1200.0, offline=20_000)


@dataclass(frozen=True)
class Study:
    """Rows by section."""

    sections: Mapping[str, Sequence[Row]]

    def targets(self) -> list[Target]:
        peak, wide, alone = (Verdict(self.sections[name]) for name in (PEAK_13B, PEAK_33B, NO_HOST))
        at = f"13B at {RATE:g} requests/s"
        return [
            Target(f"{at}: mean completion below s3", 1 - peak.most("mean", "s3"), ">=", 0.60),
            Target(f"{at}: throughput over s3", peak.least("rate", "s3"), ">=", 1.25),
            Target(f"{at}: mean completion over oracle", peak.most("mean", "oracle"), "<=", 1.0),
            Target(f"{at}: throughput over oracle", peak.least("rate", "oracle"), ">=", 1.0),
            Target(f"{at}: tokens recomputed, no host memory", alone.recomputed, "<=", 0.03),
            Target(f"{at}: p99 over paged", peak.most("p99", "paged"), "<=", 1.5),
            Target(f"33B at {RATE:g} requests/s: mean batch over s3", wide.least("batch", "s3"), ">=", 1.6),
        ]

    def verdicts(self) -> list[tuple[str, ...]]:
        """Return the targets' ratios in every section that has the rivals with all seeds: the worst seed's."""
        names = [name for name in (PEAK_13B, SLOWER, PEAK_33B) if name in self.sections]
        return [(name, *Verdict(self.sections[name]).cells()) for name in names]

    def table(self, section: str) -> list[tuple[str, ...]]:
        """Return medians over the seeds, by policy."""
        policies: dict[str, list[Row]] = {}
        for row in self.sections[section]:
            policies.setdefault(row.policy, []).append(row)
        return [_middle(rows).cells() for rows in policies.values()]


@dataclass(frozen=True)
class Verdict:
    """The default policy against the others, seed by seed."""

    rows: Sequence[Row]

    def ratios(self, figure: str, rival: str) -> list[float]:
        """Return the default's figure over the rival's; empty where the rival is not there."""
        values = {(row.policy, row.seed): float(getattr(row, figure)) for row in self.rows}
        return [values["default", seed] / value for (policy, seed), value in values.items() if policy == rival]

    def most(self, figure: str, rival: str) -> float:
        return max(self.ratios(figure, rival), default=float("nan"))

    def least(self, figure: str, rival: str) -> float:
        return min(self.ratios(figure, rival), default=float("nan"))

    @property
    def recomputed(self) -> float:
        return max(row.recomputed for row in self.rows if row.policy == "default")

    def cells(self) -> tuple[str, ...]:
        below, p99 = 1 - self.most("mean", "s3"), self.most("p99", "paged")
        over = self.least("rate", "s3"), self.most("mean", "oracle"), self.least("rate", "oracle"), p99
        shares = f"{below:.1%}", f"{self.recomputed:.1%}"
        return shares[0], *(f"{x:.2f}" for x in over), shares[1], f"{self.least('batch', 's3'):.2f}"


def study(context: Context) -> Measured:
    """Simulate all sections. What is forecast of Vicuna's lengths has been trained before."""
    need(vicuna.missing() or traces.missing() or vicuna.untrained())
    config = FULL if context.full else QUICK
    with context.stage("simulations of all policies") as progress:
        foretold = {
            name: by_prompt(traces.lengths(name), LONG_CONTEXT) if name != "vicuna" else vicuna.vicuna(vicuna.cached())
            for name in traces.SOURCES
        }
        sections = _sections(config, foretold)
        done = iter(run_all(serve, [job for jobs in sections.values() for job in jobs], config.processes, progress))
        result = Study({name: [next(done) for _ in jobs] for name, jobs in sections.items()})
    qualities = [each.quality for each in foretold.values()]
    harness.table("predictors, on rows that they were not fitted on", forecasts.HEADINGS, [q.row() for q in qualities])
    for name, rows in result.sections.items():
        harness.table(f"{name}: {rows[0].load}", HEADINGS, result.table(name))
    harness.table("the default against the others, worst seed (simulated)", VERDICTS, result.verdicts())
    harness.picture(figure(result.sections), "packing-study")
    plain = {name: [asdict(row) for row in rows] for name, rows in result.sections.items()}
    return result.targets(), {"sections": plain, "predictors": [asdict(quality) for quality in qualities]}


def _sections(config: StudyConfig, foretold: Mapping[str, Foretold]) -> dict[str, list[Job]]:
    vicuna, peak = foretold["vicuna"], large(LLAMA_13B, PEAK)
    loads = [(seed, at_rate(vicuna.lengths, RATE, config.seconds, seed)) for seed in config.seeds]
    offline = at_once(vicuna.lengths, config.offline, 0)
    rivals = [name for name in POLICIES if name != "orca"]
    sections = {
        PEAK_13B: _jobs(peak, vicuna, loads),
        SLOWER: _jobs(large(LLAMA_13B, SHORT_OF_PEAK), vicuna, loads, rivals),
        NO_HOST: _jobs(large(LLAMA_13B, PEAK, 0.0), vicuna, loads, ("default", "paged", "s3")),
        PEAK_33B: _jobs(large(LLAMA_33B, PEAK), vicuna, loads, rivals),
        "13B, offline": _jobs(peak, vicuna, [(0, offline)]),
    }
    others = _others(config, peak, foretold)
    return sections | {name: _jobs(peak, other, [(0, load)]) for name, (other, load) in others.items()}


def _others(config: StudyConfig, ground: Ground, all_of: Mapping[str, Foretold]) -> dict[str, tuple[Foretold, Load]]:
    """Return every trace at shares of what the device bears; recorded arrivals where there are some."""
    loads = {}
    for name, foretold in all_of.items():
        lengths = foretold.lengths
        for share in SHARES:
            rate, recorded = share * capacity(ground, foretold), lengths.seconds
            load = at_rate(lengths, rate, config.others if name != "vicuna" else config.seconds, 0)
            if len(recorded):
                faster = rate * float(recorded[-1] - recorded[0]) / len(recorded)
                load = as_recorded(lengths, float(recorded[0]), config.others * faster, faster)
            loads[f"13B, {name} at {share:.0%} of what it bears"] = foretold, load
    return loads


def _jobs(
    ground: Ground, foretold: Foretold, loads: Sequence[tuple[int, Load]], policies: Sequence[str] = tuple(POLICIES)
) -> list[Job]:
    return [Job(ground, load, foretold, policy, seed) for seed, load in loads for policy in policies]


def _middle(rows: Sequence[Row]) -> Row:
    """Return a row of medians."""
    numbers = [name for name, value in asdict(rows[0]).items() if isinstance(value, float)]
    middle = {name: float(np.median([getattr(row, name) for row in rows])) for name in numbers}
    return replace(rows[0], **middle)  # type: ignore[arg-type]


def figure(sections: Mapping[str, Sequence[Row]]) -> Figure:
    """Draw the mean completion and throughput of each policy, as multiples of `s3`'s, median over seeds."""
    drawn = Figure(figsize=(10, 3.8), layout="constrained")

    def of(section: str, policy: str, name: str) -> float:
        return median(float(getattr(row, name)) for row in sections[section] if row.policy == policy)

    titles = {"mean": "mean completion", "rate": "requests/s"}
    for axes, (name, title) in zip(drawn.subplots(1, 2), titles.items(), strict=True):
        for place, (policy, colour) in enumerate(COLOURS.items()):
            heights = [of(key, policy, name) / of(key, "s3", name) for key in SHOWN]
            at = [number + 0.2 * (place - 1.5) for number in range(len(SHOWN))]
            axes.bar(at, heights, 0.2, color=colour, label=policy)
        axes.set_xticks(range(len(SHOWN)), list(SHOWN.values()), rotation=20, ha="right", fontsize=8)
        axes.set(title=f"{title}, as a multiple of S3's")
        axes.axhline(1, color="#444444", lw=0.6)
    drawn.legend(*drawn.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return drawn
