"""All policies on the same requests in the simulator: published models on published devices, recorded lengths.

A job is one load served by one policy. "Throughput" is requests over the makespan: seconds from the first arrival to the
last end of a finite load, which every policy has to serve to its last request. Nothing here is measured on a device: an
iteration lasts what pliant/packing/engine/hardware.py says of the device's bandwidth and arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.packing import traces, vicuna
from benchmarks.packing.forecasts import Foretold, by_prompt
from benchmarks.packing.traces import Load
from benchmarks.packing.vicuna import Train
from pliant.packing.engine.hardware import A100, Accelerator, LargeModel, Roofline, memory_of
from pliant.packing.scheduling.iteration_cost import IterationCost
from pliant.packing.scheduling.policy import POLICIES, Rules
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.simulated import Run, simulate, summary
from pliant.progress import Progress, silent

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
    """A published model alone on one device, with so much memory of the host for what is preempted."""
    return Ground(model.name, memory_of(model, device, host_bytes=host_bytes), Roofline(model, device))


@dataclass(frozen=True)
class Job:
    """`changes`: to the policy's rules, by name; `label` tells them."""

    ground: Ground
    load: Load
    foretold: Foretold
    policy: str
    seed: int
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return ", ".join((self.policy, *(f"{name} {value:g}" for name, value in self.changes.items())))


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


def contend(
    ground: Ground,
    load: Load,
    foretold: Foretold,
    policies: Sequence[str] = tuple(POLICIES),
    seed: int = 0,
    **changes: Any,
) -> list[Row]:
    """One row a policy; `changes` are made to the rules of each."""
    return [serve(Job(ground, load, foretold, policy, seed, changes)) for policy in policies]


def serve(job: Job) -> Row:
    """One job, in virtual time."""
    asked = prompts(job.load, job.foretold)
    rules = Rules(job.policy, job.foretold.context, **job.changes)
    lengths = {one.id: one.exact for one in asked}
    return row(job, simulate(asked, lengths, rules, job.ground.memory, job.ground.steps))


def prompts(load: Load, foretold: Foretold) -> list[Prompt]:
    """The load's requests with what was forecast for their rows; `exact` is for the policy that is told."""
    of = foretold.lengths
    made = []
    for number, (at, place) in enumerate(zip(load.arrivals.tolist(), load.rows.tolist(), strict=True)):
        tokens, exact = int(of.prompt[place]), int(of.output[place])
        limit = min(foretold.limit, foretold.context - tokens)
        told = tuple(foretold.forecasts_NL[place].tolist())
        bucket = int(foretold.buckets[place])
        made.append(Prompt(number, at, tokens, limit, told, bucket, offline=load.offline, exact=exact))
    return made


def row(job: Job, run: Run) -> Row:
    """What a run comes to."""
    told, prompts = summary(run), sum(one.prompt for one in run.fates)
    slow = [one.ended - one.arrival > SLO * one.made for one in run.fates]
    return Row(
        job.ground.name, job.load.name, job.label, job.seed, told.finished, run.seconds,
        told.sequences_per_second, told.tokens_per_second, told.completion, told.p50, told.p99, told.per_token,
        1 - sum(slow) / len(slow), told.preemptions / told.finished, told.recomputed,
        run.swapped / (run.generated + prompts + run.recomputed), told.batch, run.level,
    )  # fmt: skip


def capacity(ground: Ground, foretold: Foretold) -> float:
    """Requests a second that the device bears when its cache is full of sequences, each as far as it is on average."""
    prompt, output = (x.astype(float) for x in (foretold.lengths.prompt, foretold.lengths.output))
    held = float((prompt * output + output**2 / 2).sum() / output.sum())  # tokens of one sequence, over time
    memory, steps = ground.memory, ground.steps
    batch = int(min(max(memory.pages * memory.page_tokens / held, 1), memory.sequences, memory.step_tokens))
    made = float(steps.seconds(batch, batch, int(batch * held)))
    read = float(steps.seconds(batch + int(prompt.mean()), batch, int(batch * held))) - made
    return 1 / (float(output.mean()) * made / batch + max(read, 0.0))


def trace(name: str, home: Path, train: Train, way: str, progress: Progress = silent) -> Foretold:
    """A trace with its forecasts: trained on prompts for Vicuna's lengths, by the prompt's length for the others."""
    if name == "vicuna":
        return vicuna.vicuna(vicuna.cached(home, train, way, progress))
    return by_prompt(traces.lengths(name), LONG_CONTEXT)


def run(jobs: Sequence[Job], processes: int, progress: Progress = silent) -> list[Row]:
    """All jobs, in their order."""
    if processes == 1:
        return list(_counted(map(serve, jobs), len(jobs), progress))
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(_counted(pool.map(serve, jobs), len(jobs), progress))


def _counted(rows: Iterator[Row], total: int, progress: Progress) -> Iterator[Row]:
    for at, found in enumerate(rows, start=1):
        progress(at, total)
        yield found


def median(values: Sequence[float]) -> float:
    return float(np.median(np.asarray(values)))


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For JSON."""
    return [asdict(one) for one in rows]
