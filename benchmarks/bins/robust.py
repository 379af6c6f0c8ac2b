"""Bins in worlds that differ from the profile: the default against first come, first served.

Profile: the paper's latencies of BERT-base (pliant/bins/published.py), every device with all runtimes, as is the
default; lengths are made up, most of them short. Goodput: answers in time a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np

from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.clients import Contestant, crowd
from pliant.benchmarks.robust.contest import FirstCome
from pliant.bins import simulated
from pliant.bins.knowledge import Config, Knowledge, knowledge_of
from pliant.bins.published import BERT_BASE, EDGES, published_bins
from pliant.bins.scheduler import BinsScheduler
from pliant.protocol import Answer, Finished, Launch, Request, Result, Scheduler
from pliant.workload import Segment, piecewise
from pliant.worlds import World

OURS = "default"
RIVALS = ("dynamic, first come", "padded, first come")
DEADLINE = BERT_BASE.slo
SECONDS = 3.0
WORKERS = 1
RUNTIMES = {OURS: "all", RIVALS[0]: "dynamic", RIVALS[1]: "longest"}  # as in pliant/bins/knowledge.py


@cache
def known(policy: str) -> Knowledge:
    """Return what a policy knows: the runtimes that it may use, and their seconds."""
    observed = np.bincount(lengths(4000, np.random.default_rng(0)), minlength=EDGES[-1] + 1)
    return knowledge_of([replace(published_bins(BERT_BASE), lengths=observed)], RUNTIMES[policy], "shared")


def scheduler(policy: str) -> Scheduler:
    """Return a fresh scheduler."""
    knowledge = known(policy)
    if policy == OURS:
        return BinsScheduler(knowledge, Config(WORKERS))
    (stream,) = knowledge.streams
    return FirstCome(WORKERS, 1, lambda waiting: (1, stream.cost(waiting[0].length)[0]))


def lengths(count: int, rng: np.random.Generator) -> list[int]:
    """Return this many lengths in tokens: half of them up to 48, a few as long as may be."""
    return [int(length) for length in np.clip(48 * rng.lognormal(0, 0.9, count), 1, EDGES[-1])]


@cache
def rate() -> float:
    """Return what the devices can do by the profile, in requests a second: each in the shortest runtime that takes it."""
    return WORKERS * simulated.capacity(known(OURS))


def play(policy: str, world: World, parts: Sequence[Segment], true: float, seed: int, clients: str) -> float:
    """Return how many of Poisson arrivals were answered in time; a launch takes the profile's seconds."""
    rng = np.random.default_rng((seed, 2))
    times = piecewise(parts, rng)
    drawn = zip(times.tolist(), lengths(len(times), rng), strict=True)
    load = [Request(i, at, at + DEADLINE, BERT_BASE.name, 1.0, length) for i, (at, length) in enumerate(drawn)]
    those, knowledge = crowd(load, clients, true), known(policy)
    runtimes = {setting: runtime for runtime in knowledge.runtimes for setting in runtime.settings}

    def execute(launch: Launch) -> tuple[float, Finished]:
        longest = max((those.sent[request].length for request in launch.requests), default=0)
        seconds = runtimes[launch.setting].cost(longest, len(launch.requests))[1]
        return seconds, Finished(launch.id, seconds, tuple(map(Result, launch.requests)))

    journal = those.play(scheduler(policy), execute, world, seed)
    return float(len(those.answered(a.request for e in journal for a in e.actions if isinstance(a, Answer))))


CONTESTANT = Contestant(OURS, RIVALS, DEADLINE, SECONDS, (0.5, 0.95, 2.0), WORKERS, rate, play)

in_worlds = partial(contest.robust, "bins")
"""The part of `pliant bench robust`."""
