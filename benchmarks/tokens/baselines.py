"""The service beside what it replaces, over HTTP on the champion: utility over gamma 0, overhead, and scheduler events/s.

Overhead is the time at the client minus queue and model time, as both sides report them. Queue time runs from arrival at the
service to the launch, model time is what the device process itself measured; so parsing, decoding, hand-over between
processes, the event loop and both network stacks all count as overhead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.load_generator import Example, Reply, in_turns
from pliant.benchmarks.results import Target
from pliant.benchmarks.tokens.demo import champion, print_table
from pliant.benchmarks.tokens.replay import ADAPTIVE, FIXED, ReplayConfig, Replayed, address, compare, test_examples
from pliant.errors import InputError
from pliant.protocol import JournalEntry, Request
from pliant.simulator import simulate
from pliant.tokens.adaptive import AdaptiveConfig
from pliant.tokens.policies import make
from pliant.tokens.scheduler import Knowledge
from pliant.tokens.scheduler import knowledge as tokens_knowledge
from pliant.tokens.simulated import ReferenceConfig, SimulatedDevice, kinds
from pliant.workload import poisson, requests

POLICIES = {FIXED: {"policy": "pets"}, ADAPTIVE: {"policy": "default"}}
MOST = 16.0  # times the capacity: the greatest overload tried to make a long queue
BATCH = AdaptiveConfig().max_batch  # requests

Pool = Mapping[str, Sequence[Example]]


def baselines(context: Context) -> Measured:
    """Measure; in the smallest setting nothing but the overhead of one request in flight, and the scheduler alone."""
    bundle = champion(context.full)
    pool, targets = test_examples(bundle), list[Target]()
    details: dict[str, Any] = {"device": bundle.profile.device}
    if not context.smallest:
        reference, replays = ReferenceConfig(seconds=10.0 if context.full else 4.0), list[Replayed]()
        for seed in range(3 if context.full else 1):
            replays.append(compare(POLICIES, pool, ReplayConfig(seed=seed, reference=reference), context.stage))
            print_table(Console(), replays[-1], bundle.profile.points)
        loud, quiet = (float(np.mean([replay.ratio(half) for replay in replays])) for half in (True, False))
        targets = [
            Target("utility against gamma 0, loud half", loud, ">=", 1.15, "x"),
            Target("utility against gamma 0, quiet half", quiet, ">=", 0.98, "x"),
            Target("requests without any answer, both replays", sum(r.unanswered() for r in replays), "<=", 0),
        ]
        details["replays"] = [replay.plain() for replay in replays]
    with address("default") as url:
        with context.stage("overhead, one in flight") as progress:
            tasks = list(pool)
            load = [Request(i, 0.0, 5.0, tasks[i % len(tasks)]) for i in range(context.choose(1000, 5000, 500))]
            single = _overhead(asyncio.run(in_turns([url], load, pool, progress))[0])
        targets.append(Target("overhead, one in flight, median", 1000 * single["p50"], "<=", 3.0, "ms"))
        details["one_in_flight"] = single
    with context.stage("scheduler in the simulator") as progress:
        rate_of = event_rate(tokens_knowledge(bundle.profile, bundle.tasks))
        progress(1, 1)
    name = f"scheduler events per second, {rate_of.depth:.0f} batches waiting"
    return [*targets, Target(name, rate_of.per_second, ">=", 20_000)], details | {"scheduler": asdict(rate_of)}


def _overhead(replies: Sequence[Reply]) -> dict[str, float]:
    """Return quantiles of the overhead in seconds; a request without an answer counts as infinitely late."""
    values = [r.overhead if r.status == 200 else float("inf") for r in replies]
    p50, p99, worst = map(float, np.quantile(values, [0.5, 0.99, 1.0], method="higher"))
    answered = sum(r.status == 200 for r in replies)
    return {"p50": p50, "p99": p99, "worst": worst, "answered": answered, "sent": len(replies)}


@dataclass(frozen=True, slots=True)
class EventRate:
    """Events per second of wall time; `depth`: mean number of batches waiting when an event came."""

    per_second: float
    depth: float
    events: int


def event_rate(knowledge: Knowledge, depth: float = 16.0, seconds: float = 20.0, repeats: int = 3) -> EventRate:
    """Overload the scheduler until at least `depth` batches wait on average; the median of `repeats` timed runs.

    Raises `InputError` for a depth that no overload reaches, since the scheduler holds so many requests and no more.
    """
    capacity = knowledge.latency.throughput(0, 64)
    factor = 1.0
    while (run := _events(knowledge, factor * capacity, seconds)).depth < depth:
        factor *= 1.25
        if factor > MOST:
            raise InputError("depth", depth, f"at most what {MOST:g} times the capacity builds up, {run.depth:.1f}")
    runs = (_events(knowledge, factor * capacity, seconds) for _ in range(repeats))
    return sorted(runs, key=lambda run: run.per_second)[repeats // 2]


def _events(knowledge: Knowledge, rate: float, seconds: float) -> EventRate:
    rng = np.random.default_rng(0)
    load = requests(poisson(rate, seconds, rng), kinds(list(knowledge.accuracy), ReferenceConfig()), rng)
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, rng)
    scheduler, depths = make("default", knowledge), list[int]()

    def observe(_entry: JournalEntry) -> None:
        depths.append(-(-scheduler.waiting // BATCH))

    start = time.perf_counter()
    journal = simulate(scheduler, load, device, observe)
    return EventRate(len(journal) / (time.perf_counter() - start), float(np.mean(depths)), len(journal))
