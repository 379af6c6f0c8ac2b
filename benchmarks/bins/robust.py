"""Bins in worlds that differ from the profile: the default against first come, first served.

Profile: the paper's latencies of BERT-base (benchmarks/bins/published.py), every device with all runtimes, as is the
default; lengths are made up, most of them short. Goodput: answers in time a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial

import numpy as np

from pliant.benchmarks.bins.published import BERT_BASE, EDGES, published_bins
from pliant.benchmarks.robust import clients as robust
from pliant.benchmarks.robust import contest
from pliant.benchmarks.robust.clients import DISTURBANCES, Clients, capacity, crowd, lasting, segments
from pliant.benchmarks.robust.contest import Choose, FirstCome
from pliant.bins import simulated
from pliant.bins.knowledge import Config, Knowledge, Stream, knowledge_of
from pliant.bins.scheduler import BinsScheduler
from pliant.protocol import Answer, Finished, Journal, Launch, Request, Result, Scheduler
from pliant.simulator import Execute, Observer
from pliant.workload import Segment, piecewise
from pliant.worlds import World

OURS = "default"
RIVALS = ("dynamic, first come", "padded, first come")
DEADLINE = BERT_BASE.slo
SECONDS = 3.0
LOADS = (0.5, 0.95, 2.0)
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
    return FirstCome(WORKERS, 1, _one(stream))


def _one(stream: Stream) -> Choose:
    return lambda waiting: (1, stream.cost(waiting[0].length)[0])


def lengths(count: int, rng: np.random.Generator) -> list[int]:
    """Return this many lengths in tokens: half of them up to 48, a few as long as may be."""
    return [int(length) for length in np.clip(48 * rng.lognormal(0, 0.9, count), 1, EDGES[-1])]


def requests(parts: list[Segment], seed: int) -> list[Request]:
    """Return Poisson arrivals."""
    rng = np.random.default_rng((seed, 2))
    times = piecewise(parts, rng)
    drawn = zip(times.tolist(), lengths(len(times), rng), strict=True)
    return [Request(i, at, at + DEADLINE, BERT_BASE.name, 1.0, length) for i, (at, length) in enumerate(drawn)]


def _execute(knowledge: Knowledge, sent: Mapping[int, Request]) -> Execute:
    """Return launches that take the profile's seconds. `sent`: every request by its id, those sent again later too."""
    runtimes = {setting: runtime for runtime in knowledge.runtimes for setting in runtime.settings}

    def execute(launch: Launch) -> tuple[float, Finished]:
        longest = max((sent[request].length for request in launch.requests), default=0)
        seconds = runtimes[launch.setting].cost(longest, len(launch.requests))[1]
        return seconds, Finished(launch.id, seconds, tuple(map(Result, launch.requests)))

    return execute


def value(policy: str, world: World, load: float, seed: int, clients: str = "patient") -> float:
    """Return the answers in time, one a question, for each second of the load."""
    true = capacity(world, SECONDS, WORKERS / rate())
    parts = segments(load * true * rate(), lasting(world, SECONDS, true), clients, true * rate(), DEADLINE)
    journal, those = play(policy, world, parts, true * rate(), seed, clients)
    return len(answered(journal, those)) / sum(part.seconds for part in parts)


@cache
def rate() -> float:
    """Return what the devices can do by the profile, in requests a second: each in the shortest runtime that takes it."""
    return WORKERS * simulated.capacity(known(OURS))


def play(
    policy: str,
    world: World,
    parts: list[Segment],
    true: float,
    seed: int,
    clients: str = "patient",
    watch: Callable[[Scheduler], Observer] | None = None,
) -> tuple[Journal, Clients]:
    """Return the journal of a policy on this load, and its clients.

    `true`: requests a second of the true devices; `watch`: gives what is called after every event.
    """
    those = crowd(requests(parts, seed), clients, true)
    return those.play(scheduler(policy), _execute(known(policy), those.sent), world, seed, watch), those


def recovery(policy: str, seed: int, disturbance: str = DISTURBANCES[0]) -> float:
    """Return the typical deadlines after a disturbance until as much as before is answered."""

    def played(world: World, parts: list[Segment]) -> list[tuple[float, float, float]]:
        journal, those = play(policy, world, parts, rate(), seed)
        return those.offered(dict.fromkeys(answered(journal, those), 1.0))

    return robust.recovery(disturbance, rate(), 4 * SECONDS, DEADLINE, played)


def answered(journal: Journal, those: Clients) -> set[int]:
    """Return the requests that were answered in time, one a question."""
    return those.answered(a.request for entry in journal for a in entry.actions if isinstance(a, Answer))


in_worlds = partial(contest.robust, "bins")
"""The part of `pliant bench robust`."""
