"""The endpoint's own overhead: time at the client minus queue and model time, as both sides report them.

Queue time runs from arrival at the service to the launch, model time is what the device process itself measured; so parsing,
decoding, hand-over between processes, the event loop and both network stacks all count as overhead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.load_generator import Example, Reply, one_by_one, replay
from pliant.progress import Progress
from pliant.protocol import Request
from pliant.workload import RequestKind, poisson, requests


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds. `answered` of `sent` requests gave a figure."""

    p50: float
    p99: float
    worst: float
    answered: int
    sent: int


def one_in_flight(address: str, pool: Mapping[str, Sequence[Example]], count: int, progress: Progress) -> Overhead:
    """One request after the other on one connection: each is sent when the one before it was answered."""
    tasks = list(pool)
    load = [Request(i, 0.0, 5.0, tasks[i % len(tasks)]) for i in range(count)]
    return _overhead(asyncio.run(one_by_one(address, load, pool, progress)))


def at_rate(
    address: str, pool: Mapping[str, Sequence[Example]], rate: float, seconds: float, progress: Progress
) -> Overhead:
    """Poisson arrivals at `rate` requests per second."""
    rng = np.random.default_rng(1)
    load = requests(poisson(rate, seconds, rng), [RequestKind(task, 5.0, 1.0) for task in pool], rng)
    return _overhead(asyncio.run(replay(address, load, pool, progress=progress)))


def _overhead(replies: Sequence[Reply]) -> Overhead:
    """A request without an answer counts as infinitely late."""
    values = [r.overhead if r.status == 200 else float("inf") for r in replies]
    p50, p99, worst = np.quantile(values, [0.5, 0.99, 1.0], method="higher")
    return Overhead(float(p50), float(p99), float(worst), sum(r.status == 200 for r in replies), len(replies))
