"""Targets of requests under overload, simulated with recorded lengths: how many a second keep all of theirs.

A 13B model on an A100 at its published peaks serves ShareGPT's and Azure's recorded lengths with Poisson arrivals. Each
request has a target for its first token, 1 s or 4 s in equal parts, and one of 0.1 s for each further token (DistServe's
for a chatbot, OSDI 2024). Goodput is the requests a second that keep both. Pliant refuses at once what its forecast says
cannot be kept; the published policies refuse nothing. Since that alone decides much, each of them is also served to clients
that give up once their first token is due, which spares it the requests that are lost anyway. The forecast knows the
prompt's length alone. What a refusal and a decision cost is measured on this machine.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks.harness import Context, Measured, need
from pliant.benchmarks.packing import traces
from pliant.benchmarks.packing.study import Ground, large, prompts
from pliant.benchmarks.packing.traces import Foretold, at_rate, by_prompt
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.packing.hardware import A100, LLAMA_13B
from pliant.packing.scheduling.iteration_cost import LinearCost
from pliant.packing.scheduling.policy import Rules
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt, StepInput
from pliant.packing.scheduling.scheduler import PackingScheduler
from pliant.packing.scheduling.simulated import simulate
from pliant.packing.scheduling.targets import Admission

TTFT, TPOT = (1.0, 4.0), 0.1  # seconds
RIVALS = ("paged", "past-future", "edf", "s3")
OURS = "default"
TRACES = ("sharegpt", "azure")
CONTEXT = 4096
LOADS = (1.2, 1.5)  # of what the device bears with its memory full
RUNNING, WAITING = 256, 2000  # in the measured decisions and refusals


QUICK: tuple[tuple[int, ...], float, int] = ((0, 1, 2), 120.0, 300)
"""Seeds, seconds of arrivals in each run, and decisions that are measured."""
FULL, SMALLEST = ((0, 1, 2, 3, 4), 600.0, 2000), ((0,), 120.0, 300)


@dataclass(frozen=True, slots=True)
class SloJob:
    """One load, served by one policy. `gives_up`: clients cancel what has not begun when its first token is due."""

    trace: str
    load: float
    policy: str
    gives_up: bool
    seed: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SloRow:
    """What became of one load."""

    trace: str
    load: float
    policy: str
    gives_up: bool
    seed: int
    requests: int
    accepted: int
    good: int  # that kept both targets
    seconds: float  # from the first arrival to the last end

    @property
    def goodput(self) -> float:
        return self.good / self.seconds

    @property
    def borne(self) -> float:
        """Return the share that was accepted, over that which the capacity allows."""
        return self.accepted / self.requests * self.load

    @property
    def kept(self) -> float:
        """Return the share of the accepted requests that kept both targets."""
        return self.good / self.accepted if self.accepted else float("nan")


@dataclass(frozen=True, slots=True)
class SloResult:
    """Rows of all runs, and the p99 of the milliseconds that a decision and a refusal took here."""

    rows: Sequence[SloRow]
    decision_ms: float
    refusal_ms: float

    def targets(self) -> list[Target]:
        """Return the targets: the median of the seeds, of the trace where it is worst."""
        best, most = ", ".join(RIVALS), LOADS[-1]
        kept, borne = (min(self.median(at, most, OURS, False, of) for at in TRACES) for of in ("kept", "borne"))
        return [
            *(
                Target(f"goodput at {load:g}x, over the best of {best}", self.ratio(load), ">=", 1.4, "x")
                for load in LOADS
            ),
            Target(f"accepted requests that keep their targets at {most:g}x", kept, ">=", 0.99),
            Target(f"share accepted at {most:g}x, over what the capacity allows", borne, ">=", 0.9),
            Target(f"a decision with {RUNNING} running, p99", self.decision_ms, "<=", 2.0, "ms"),
            Target(f"a refusal with {RUNNING} running and {WAITING:,} waiting, p99", self.refusal_ms, "<=", 20.0, "ms"),
        ]

    def ratio(self, load: float, gives_up: bool = False) -> float:
        """Return our goodput over that of the best rival, of the trace where it is least."""
        return min(
            self.median(trace, load, OURS, False, "goodput")
            / max(self.median(trace, load, policy, gives_up, "goodput") for policy in RIVALS)
            for trace in TRACES
        )

    def median(self, trace: str, load: float, policy: str, gives_up: bool, figure: str) -> float:
        """Return the median of a figure over the seeds."""
        kind = (trace, load, policy, gives_up)
        rows = [row for row in self.rows if (row.trace, row.load, row.policy, row.gives_up) == kind]
        return median(float(getattr(row, figure)) for row in rows)


def slo(context: Context) -> Measured:
    """Simulate all policies on all loads, and measure decisions and refusals."""
    need(traces.missing(*TRACES))
    with context.stage("targets under overload, simulated, and what deciding costs") as progress:
        seeds, seconds, decisions = context.choose(QUICK, FULL, SMALLEST)
        served = [*((policy, gives_up) for policy in RIVALS for gives_up in (False, True)), (OURS, False)]
        kinds = product(TRACES, LOADS, served, seeds)
        jobs = [SloJob(trace, load, *kind, seed, seconds) for trace, load, kind, seed in kinds]
        result = SloResult(run_all(serve, jobs, 2, progress), decision_ms(decisions), refusal_ms(decisions))
    waiting = {f"{load:g}": result.ratio(load, gives_up=True) for load in LOADS}
    over = ", ".join(f"{ratio:.2f}x at {load}x" for load, ratio in waiting.items())
    Console().print(f"Over the best of them where clients give up once their first token is due: {over}.")
    rows = [asdict(row) for row in result.rows]
    return result.targets(), {"rows": rows, "goodput over rivals whose clients give up": waiting}


def capacity(ground: Ground, foretold: Foretold) -> float:
    """Return the requests a second that the device bears with its cache full of sequences, each as far as on average."""
    prompt, output = (x.astype(float) for x in (foretold.lengths.prompt, foretold.lengths.output))
    held = float((prompt * output + output**2 / 2).sum() / output.sum())  # tokens of one sequence, over time
    memory, steps = ground.memory, ground.steps
    batch = int(min(max(memory.pages * memory.page_tokens / held, 1), memory.sequences, memory.step_tokens))
    iteration = float(steps.seconds(batch, batch, int(batch * held)))
    read = float(steps.seconds(batch + int(prompt.mean()), batch, int(batch * held))) - iteration
    return 1 / (float(output.mean()) * iteration / batch + max(read, 0.0))


def serve(job: SloJob) -> SloRow:
    """Serve one job, in virtual time."""
    ground, foretold = large(LLAMA_13B, replace(A100, efficiency=1.0)), by_prompt(traces.lengths(job.trace), CONTEXT)
    requests = with_targets(ground, foretold, job)
    lengths, ours = {request.id: request.exact for request in requests}, job.policy == OURS
    rules = Rules(job.policy, foretold.context, cost=ground.steps if ours else None)
    admission = Admission(ground.steps, ground.memory) if ours else None
    options: Mapping[str, Any] = {"admission": admission, "give_up": job.gives_up}
    run = simulate(requests, lengths, rules, ground.memory, ground.steps, **options)
    served = [(request, fate) for request, fate in zip(requests, run.fates, strict=True) if not fate.dropped]
    good = sum(
        fate.first - fate.arrival <= request.ttft
        and (fate.ended - fate.first) / max(fate.generated - 1, 1) <= request.tpot
        for request, fate in served
    )
    kind = (job.trace, job.load, job.policy, job.gives_up, job.seed)
    return SloRow(*kind, len(requests), len(served), good, run.seconds)


def with_targets(ground: Ground, foretold: Foretold, job: SloJob) -> list[Prompt]:
    """Return the requests of a job, in the order of their ids."""
    load = at_rate(foretold.lengths, job.load * capacity(ground, foretold), job.seconds, job.seed)
    drawn = np.random.default_rng([job.seed, 7]).choice(TTFT, len(load.arrivals)).tolist()
    return [replace(each, ttft=ttft, tpot=TPOT) for each, ttft in zip(prompts(load, foretold), drawn, strict=True)]


def decision_ms(count: int) -> float:
    """Return the p99 of the milliseconds that a decision takes while RUNNING texts have targets and as many wait."""
    cost, seconds = LinearCost(0.02, 1e-5, 1e-5, 1e-8, 0.0), []
    scheduler = PackingScheduler(
        Rules(OURS, CONTEXT, cost=cost), Memory(20_000, 16, step_tokens=2048, sequences=RUNNING)
    )
    arriving = tuple(_text(number, 0.0) for number in range(2 * RUNNING))
    scheduler.handle(StepInput(arriving), 0.0)
    for step in range(count + RUNNING):
        now, arrived = 0.03 * (step + 1), (_text(2 * RUNNING + step, 0.03 * (step + 1)),)
        began = time.perf_counter()
        scheduler.handle(StepInput(arrived, cancelled=(step,)), now)
        seconds.append(time.perf_counter() - began)
    return 1000 * float(np.quantile(seconds[RUNNING:], 0.99))


def refusal_ms(count: int) -> float:
    """Return the p99 of the milliseconds that a refusal takes with RUNNING texts that run and WAITING that wait."""
    admission, seconds = Admission(LinearCost(0.02, 1e-5, 1e-5, 1e-8, 0.0), Memory(20_000, 16)), []
    for number in range(RUNNING + WAITING):
        patient = replace(_text(number, 0.0), ttft=FOREVER, tpot=FOREVER)  # which is always accepted
        assert admission.offer(patient, 0.0) is None
        if number < RUNNING:
            admission.began(number, 0.0)
    for number in range(count):
        began = time.perf_counter()
        refused = admission.offer(replace(_text(RUNNING + WAITING + number, 0.0), ttft=0.001), 0.0)
        seconds.append(time.perf_counter() - began)
        assert refused is not None, "an offer that is accepted is no refusal"
    return 1000 * float(np.quantile(seconds, 0.99))


def _text(number: int, arrival: float) -> Prompt:
    return Prompt(number, arrival, 200, 400, (40.0, 60.0, 90.0, 140.0, 200.0, 260.0, 300.0, 380.0), ttft=1.0, tpot=0.2)
