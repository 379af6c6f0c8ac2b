"""All policies on the same requests in the simulator: published models on published devices, recorded lengths.

A job is one load served by one policy. "Throughput" is requests over the makespan: seconds from the first arrival to the
last end of a finite load, which every policy has to serve to its last request. Nothing here is measured on a device: an
iteration lasts what pliant/packing/hardware.py says of the device's bandwidth and arithmetic.

The targets are taken with both of the A100's published peaks, of bandwidth and of arithmetic (a roofline; S3 takes
generation for bound by memory). With 60% of the arithmetic a 13B model bears 50 requests/s under any policy: at 90 all that
a policy can then do is to order a queue. What remains of the ratios there is shown beside them. The worst seed counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing import vicuna
from pliant.benchmarks.packing.traces import Foretold, Load, at_rate
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.packing.hardware import A100, LLAMA_13B, LLAMA_33B, Accelerator, LargeModel, Roofline, memory_of
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import simulate, summary

HOST_BYTES = 128e9
RATE = 90.0  # requests/s
PEAK = replace(A100, efficiency=1.0)
SHORT_OF_PEAK = replace(A100, efficiency=0.6)
PEAK_13B, PEAK_33B, SLOWER, NO_HOST = "13B", "33B", "13B at 60% of the arithmetic", "13B without the host's memory"


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
    """What became of one load. `mean` and `p99`: seconds from arrival to the last token."""

    policy: str
    seed: int
    requests: int
    seconds: float  # makespan
    rate: float  # requests/s
    tokens: float  # of outputs, a second
    mean: float
    p99: float
    recomputed: float  # tokens that were read again, over all that were read or made
    batch: float  # mean sequences an iteration


def serve(job: Job) -> Row:
    """Serve one job, in virtual time."""
    requests = prompts(job.load, job.foretold)
    rules = Rules(job.policy, job.foretold.context, cost=job.ground.steps)
    run = simulate(
        requests, {prompt.id: prompt.exact for prompt in requests}, rules, job.ground.memory, job.ground.steps
    )
    total = summary(run)
    speeds = total.sequences_per_second, total.tokens_per_second, total.completion, total.p99
    return Row(job.policy, job.seed, total.finished, run.seconds, *speeds, total.recomputed, total.batch)


def prompts(load: Load, foretold: Foretold) -> list[Prompt]:
    """Return the load's requests with what was forecast for their rows; `exact` is for the policy that knows it."""
    of = foretold.lengths
    requests = []
    for number, (at, place) in enumerate(zip(load.arrivals.tolist(), load.rows.tolist(), strict=True)):
        tokens, exact = int(of.prompt[place]), int(of.output[place])
        limit = min(foretold.limit, foretold.context - tokens)
        forecast, bucket = tuple(foretold.forecasts_NL[place].tolist()), int(foretold.buckets[place])
        requests.append(Prompt(number, at, tokens, limit, forecast, bucket, exact=exact))
    return requests


QUICK = ((0, 1, 2), 60.0)
FULL = ((0, 1, 2, 3, 4), 300.0)
"""Seeds, and seconds of arrivals."""


def targets(sections: Mapping[str, Sequence[Row]]) -> list[Target]:
    """Judge the rows by section."""
    peak, wide, alone = (Verdict(sections[name]) for name in (PEAK_13B, PEAK_33B, NO_HOST))
    at, recomputed = f"13B at {RATE:g} requests/s", max(r.recomputed for r in alone.rows if r.policy == "default")
    return [
        Target(f"{at}: mean completion below s3", 1 - peak.most("mean", "s3"), ">=", 0.60),
        Target(f"{at}: throughput over s3", peak.least("rate", "s3"), ">=", 1.25),
        Target(f"{at}: mean completion over oracle", peak.most("mean", "oracle"), "<=", 1.0),
        Target(f"{at}: throughput over oracle", peak.least("rate", "oracle"), ">=", 1.0),
        Target(f"{at}: tokens recomputed, no host memory", recomputed, "<=", 0.03),
        Target(f"{at}: p99 over paged", peak.most("p99", "paged"), "<=", 1.5),
        Target(f"33B at {RATE:g} requests/s: mean batch over s3", wide.least("batch", "s3"), ">=", 1.6),
    ]


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


def study(context: Context) -> Measured:
    """Simulate all sections. What is forecast of Vicuna's lengths has been trained before."""
    need(vicuna.missing() or vicuna.untrained())
    rivals, peak = tuple(name for name in POLICIES if name != "orca"), large(LLAMA_13B, PEAK)
    compared: Mapping[str, tuple[Ground, Sequence[str]]] = {
        PEAK_13B: (peak, tuple(POLICIES)),
        SLOWER: (large(LLAMA_13B, SHORT_OF_PEAK), rivals),
        NO_HOST: (large(LLAMA_13B, PEAK, 0.0), ("default", "paged", "s3")),
        PEAK_33B: (large(LLAMA_33B, PEAK), rivals),
    }
    with context.stage("simulations of all policies") as progress:
        (seeds, seconds), foretold = FULL if context.full else QUICK, vicuna.vicuna(vicuna.cached())
        loads = [(seed, at_rate(foretold.lengths, RATE, seconds, seed)) for seed in seeds]
        sections = {
            name: [Job(ground, load, foretold, policy, seed) for seed, load in loads for policy in policies]
            for name, (ground, policies) in compared.items()
        }
        done = iter(run_all(serve, [job for jobs in sections.values() for job in jobs], 2, progress))
        rows = {name: [next(done) for _ in jobs] for name, jobs in sections.items()}
    return targets(rows), {"sections": {name: [asdict(row) for row in each] for name, each in rows.items()}}
