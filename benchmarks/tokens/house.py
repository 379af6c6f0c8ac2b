"""The targets of the service and its main job, over HTTP on the champion: replay, overhead, and the scheduler's rate.

One of the parts of `pliant bench tokens` (see bench.py). What must not go wrong (bad input, SIGTERM with requests in flight,
altered artifacts) is tested in tests/serving/tokens and tests/registry.

Overhead is the time at the client minus queue and model time, as both sides report them. Queue time runs from arrival at the
service to the launch, model time is what the device process itself measured; so parsing, decoding, hand-over between
processes, the event loop and both network stacks all count as overhead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.harness import Measured, Stage
from benchmarks.load_generator import Example, Reply, in_turns, replay
from benchmarks.results import Target
from benchmarks.tokens.demo import print_table
from benchmarks.tokens.endpoint import address, test_examples
from benchmarks.tokens.replay import ADAPTIVE, ReplayConfig, Replayed, compare
from benchmarks.tokens.scheduler import EventRate, event_rate
from flows.tokens.stages import Bundle
from pliant.progress import Progress
from pliant.protocol import Request
from pliant.tokens.knowledge import knowledge as tokens_knowledge
from pliant.tokens.reference import ReferenceConfig
from pliant.workload import RequestKind, poisson, requests


@dataclass(frozen=True, slots=True)
class Setting:
    """How long to measure."""

    stretch: float = 4.0  # seconds per stretch of the replayed load
    seeds: int = 1
    overhead_requests: int = 1000
    overhead_seconds: float = 60.0


QUICK, FULL = Setting(), Setting(stretch=10.0, seeds=3, overhead_requests=5000)


def measure(bundle: Bundle, full: bool, stage: Stage) -> Measured:
    """Return the targets, and everything measured."""
    setting = FULL if full else QUICK
    replays = _replays(bundle, setting, stage)
    loud, quiet = (float(np.mean([replay.ratio(half) for replay in replays])) for half in (True, False))
    overheads, overhead = _overheads(bundle, setting, replays[0].capacity, stage)
    with stage("scheduler in the simulator") as progress:
        rate = event_rate(tokens_knowledge(bundle.profile, bundle.tasks))
        progress(1, 1)
    targets = [
        Target("utility against gamma 0, loud half", loud, ">=", 1.15, "x"),
        Target("utility against gamma 0, quiet half", quiet, ">=", 0.98, "x"),
        Target("requests without any answer, both replays", sum(replay.unanswered() for replay in replays), "<=", 0),
        *overheads,
        _events(rate),
    ]
    details = {"overhead": overhead, "scheduler": asdict(rate), "device": bundle.profile.device}
    return targets, {"replays": [replay.plain() for replay in replays], **details}


def light(bundle: Bundle, stage: Stage) -> Measured:
    """Return what takes seconds: the overhead of one request in flight, and the scheduler alone."""
    pool = test_examples(bundle)
    with address(ADAPTIVE) as url, stage("overhead, one in flight") as progress:
        single = one_in_flight(url, pool, 500, progress)
    rate = event_rate(tokens_knowledge(bundle.profile, bundle.tasks))
    return [_in_flight(single), _events(rate)], {"one_in_flight": asdict(single), "scheduler": asdict(rate)}


def _in_flight(single: Overhead) -> Target:
    return Target("overhead, one in flight, median", 1000 * single.p50, "<=", 3.0, "ms")


def _events(rate: EventRate) -> Target:
    return Target(f"scheduler events per second, {rate.depth:.0f} batches waiting", rate.per_second, ">=", 20_000)


def _replays(bundle: Bundle, setting: Setting, stage: Stage) -> list[Replayed]:
    reference, pool = ReferenceConfig(seconds=setting.stretch), test_examples(bundle)
    replays = []
    for seed in range(setting.seeds):
        replays.append(compare(address, pool, ReplayConfig(seed=seed, reference=reference), stage))
        print_table(Console(), replays[-1])
    return replays


def _overheads(bundle: Bundle, setting: Setting, capacity: float, stage: Stage) -> tuple[list[Target], dict[str, Any]]:
    pool, seconds = test_examples(bundle), setting.overhead_seconds
    with address(ADAPTIVE) as url:
        with stage("overhead, one in flight") as progress:
            single = one_in_flight(url, pool, setting.overhead_requests, progress)
        with stage("overhead at a third of capacity") as progress:
            third = at_rate(url, pool, capacity / 3, seconds, progress)
    name = f"overhead at a third of capacity, p99 over {seconds:.0f} s"
    targets = [
        _in_flight(single),
        Target(name, 1000 * third.p99, "<=", 15.0, "ms"),
    ]
    return targets, {"one_in_flight": asdict(single), "third_of_capacity": asdict(third), "rate": capacity / 3}


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds. `answered` of `sent` requests gave a figure."""

    p50: float
    p99: float
    worst: float
    answered: int
    sent: int


def one_in_flight(url: str, pool: Mapping[str, Sequence[Example]], count: int, progress: Progress) -> Overhead:
    """Send one request after the other on one connection, each when the one before it was answered."""
    tasks = list(pool)
    load = [Request(i, 0.0, 5.0, tasks[i % len(tasks)]) for i in range(count)]
    (replies,) = asyncio.run(in_turns([url], load, pool, progress))
    return _overhead(replies)


def at_rate(
    url: str, pool: Mapping[str, Sequence[Example]], rate: float, seconds: float, progress: Progress
) -> Overhead:
    """Send Poisson arrivals at `rate` requests per second."""
    rng = np.random.default_rng(1)
    load = requests(poisson(rate, seconds, rng), [RequestKind(task, 5.0, 1.0) for task in pool], rng)
    return _overhead(asyncio.run(replay(url, load, pool, progress=progress)))


def _overhead(replies: Sequence[Reply]) -> Overhead:
    """Return the overhead of the replies; a request without an answer counts as infinitely late."""
    values = [r.overhead if r.status == 200 else float("inf") for r in replies]
    p50, p99, worst = np.quantile(values, [0.5, 0.99, 1.0], method="higher")
    return Overhead(float(p50), float(p99), float(worst), sum(r.status == 200 for r in replies), len(replies))
