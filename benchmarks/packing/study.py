"""All policies on the same requests in the simulator: published models on published devices, recorded lengths.

A job is one load served by one policy. "Throughput" is requests over the makespan: seconds from the first arrival to the
last end of a finite load, which every policy has to serve to its last request. Nothing here is measured on a device: an
iteration lasts what benchmarks/packing/hardware.py says of the device's bandwidth and arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.packing import traces, vicuna
from benchmarks.packing.forecasts import Foretold, by_prompt
from benchmarks.packing.hardware import A100, Accelerator, LargeModel, Roofline, memory_of
from benchmarks.packing.traces import Load
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import Run, simulate, summary

SLO = 0.1875  # seconds a token: an average reader's speed (S3, section 5.1)
HOST_BYTES = 128e9
LONG_CONTEXT = 16_384  # tokens, where prompts are recorded ones
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


def trace(name: str, home: Path) -> Foretold:
    """Return a trace with its forecasts: trained on prompts for Vicuna's lengths, by the prompt's length for the others."""
    if name == "vicuna":
        return vicuna.vicuna(vicuna.cached(home))
    return by_prompt(traces.lengths(name), LONG_CONTEXT)
