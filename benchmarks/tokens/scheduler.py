"""How many events a second the tokens scheduler handles in the simulator, on one core, with a long queue."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from pliant.errors import InputError
from pliant.protocol import JournalEntry
from pliant.simulator import simulate
from pliant.tokens.policies import make
from pliant.tokens.policy import Knowledge
from pliant.tokens.reference import ReferenceConfig, kinds
from pliant.tokens.simulated import SimulatedDevice
from pliant.workload import poisson, requests

MOST = 16.0  # times the capacity: the greatest overload tried


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
    while (run := _run(knowledge, factor * capacity, seconds)).depth < depth:
        factor *= 1.25
        if factor > MOST:
            raise InputError("depth", depth, f"at most what {MOST:g} times the capacity builds up, {run.depth:.1f}")
    runs = sorted((_run(knowledge, factor * capacity, seconds) for _ in range(repeats)), key=lambda run: run.per_second)
    return runs[repeats // 2] if repeats else run


def _run(knowledge: Knowledge, rate: float, seconds: float) -> EventRate:
    rng = np.random.default_rng(0)
    load = requests(poisson(rate, seconds, rng), kinds(list(knowledge.accuracy), ReferenceConfig()), rng)
    device = SimulatedDevice(knowledge.latency, knowledge.accuracy, load, rng)
    scheduler = make("default", knowledge)
    depths: list[int] = []

    def observe(entry: JournalEntry) -> None:
        del entry
        depths.append(scheduler.batches_waiting)

    start = time.perf_counter()
    journal = simulate(scheduler, load, device, observe)
    return EventRate(len(journal) / (time.perf_counter() - start), float(np.mean(depths)), len(journal))
