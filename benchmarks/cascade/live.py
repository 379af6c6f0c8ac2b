"""What the cascade bears over HTTP at the large model's latency, on real texts, by the real service.

The large model alone, the default and, where it plans anything with these levels, Tabi are named in requests to one
service, in turns, at the same random times with the same texts; on the full setting Tabi with its own levels as well, but
for long texts. Deadlines are far away, so that no answer is cut short: compared is the rate at which 99% of the answers come
within one time, ten times what the large model alone takes over HTTP.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from pliant.benchmarks import places
from pliant.benchmarks.cascade.demo import DEFAULT, form
from pliant.benchmarks.cascade.material import FOLDER
from pliant.benchmarks.cascade.served import OWN, SETS, TABLES, Served, prepared
from pliant.benchmarks.endpoint import core_seconds, launched
from pliant.benchmarks.harness import Context, Measured, Stage, need
from pliant.benchmarks.highest_rate import highest, next_rate
from pliant.benchmarks.load_generator import Reply, capacity, in_turns, replay, turns, warm
from pliant.benchmarks.results import Target
from pliant.cascade.artifact import Cascade
from pliant.progress import Progress
from pliant.protocol import Request
from pliant.workload import poisson

LARGE, BAG, TABI, TABI_OWN = "only large", "only bag", "tabi", "tabi, its own levels"
SHARES = (0.5, 0.9)  # of what the large model alone bears in a closed loop
TIMES = 10.0  # of the large model's mean seconds alone: what 99% of the answers may take
DEADLINE = 25.0  # seconds, which a request without an answer counts
FURTHER = SETS[3:]  # pairs and long texts, which have no targets here
RATE, RATE_MEDIAN, CORE, CORE_MEDIAN, LESS = 2.0, 4.0, 0.5, 0.25, -0.01


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Times in seconds. `rounds`: turns at each of SHARES; `trials`: rates that are tried with each candidate."""

    seconds: float = 6.0
    rounds: int = 2
    tried: float = 5.0
    trials: int = 8
    probe: float = 4.0
    clients: int = 32
    alone: int = 200


@dataclass(frozen=True, slots=True)
class Figures:
    """What one data set gave, by candidate. `closed`: answers/s to clients who each wait for one; `loads`: at SHARES."""

    alone: Mapping[str, float]  # mean seconds of one request after the other
    cores: Mapping[str, float]  # core-seconds of the service for 1,000 of these
    closed: Mapping[str, float]
    borne: Mapping[str, float]  # requests/s of which 99% are answered within the time allowed
    loads: Sequence[Mapping[str, Any]]

    def mean(self, candidate: str, figure: str) -> float:
        """Return the mean of a figure of the loads over all answers."""
        rows = [row for row in self.loads if row["candidate"] == candidate]
        return float(np.average([row[figure] for row in rows], weights=[row["answers"] for row in rows]))

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each candidate; the bag's shows what HTTP costs and bears, of which `of HTTP` is a share."""
        named = {"s alone": self.alone, "core s/1000 alone": self.cores, "1/s closed loop": self.closed}
        rates = {name: self.borne.get(name, math.nan) for name in self.alone}
        named |= {"1/s at equal p99": rates, "of HTTP": {n: rate / self.closed[BAG] for n, rate in rates.items()}}
        return [{"candidate": name, **{key: each[name] for key, each in named.items()}} for name in self.alone]


def targets(every: Sequence[Figures]) -> list[Target]:
    """Return the targets, of the worst data set and of the median."""
    rates = [each.borne[DEFAULT] / each.borne[LARGE] if each.borne[LARGE] else math.nan for each in every]
    cores = [each.mean(DEFAULT, "core s/1000") / each.mean(LARGE, "core s/1000") for each in every]
    less = [each.mean(DEFAULT, "accuracy") - each.mean(LARGE, "accuracy") for each in every]
    rate, core = "live: requests/s at equal p99 over the large model", "live: core-seconds over the large model"
    return [
        Target(f"{rate}, worst set", min(rates), ">=", RATE, "x"),
        Target(f"{rate}, median", median(rates), ">=", RATE_MEDIAN, "x"),
        Target(f"{core}, worst set", max(cores), "<=", CORE, "x"),
        Target(f"{core}, median", median(cores), "<=", CORE_MEDIAN, "x"),
        Target("live: accuracy less the large model's, worst set", min(less), ">=", LESS),
    ]


def live(context: Context) -> Measured:
    """Train, serve and measure each data set; the quick setting takes one."""
    names = list(SETS) if context.full else ["banking77"]
    need(places.missing(*(FOLDER / f"{TABLES[name]}.parquet" for name in names if name in TABLES)))
    config, stage = LiveConfig(), context.stage
    every = {name: measure(name, prepared(name, context), config, stage) for name in names}
    rows = [{"data": name, **row} for name, each in every.items() for row in each.rows()]
    loads = [{"data": name, **row} for name, each in every.items() for row in each.loads]
    limits = targets([each for name, each in every.items() if name not in FURTHER])
    return limits, {"candidates": rows, "loads": loads}


def measure(task: str, served: Served, config: LiveConfig, stage: Stage) -> Figures:
    """Serve a champion, and measure what it bears."""
    cascades, own = served.cascades, f"{task}-{OWN}"
    named = {
        DEFAULT: (task, DEFAULT),
        TABI: (task, TABI),
        TABI_OWN: (own, TABI),
        LARGE: (task, LARGE),
        BAG: (task, BAG),
    }
    named = {name: (of, candidate) for name, (of, candidate) in named.items() if plans(cascades.get(of), candidate)}
    levels = {of: [level.name for level in cascade.levels] for of, cascade in cascades.items()}
    forms = {name: form(candidate, levels[of]) for name, (of, candidate) in named.items()}
    pool, compared = served.pool, [name for name in named if name != BAG]
    alone, used, closed = dict[str, float](), dict[str, float](), dict[str, float]()
    loads, tried = list[dict[str, Any]](), {name: list[tuple[float, bool]]() for name in compared}
    with launched("cascade", {"agreement_share": 0.0}, project=served.project) as service:
        service.wait_until_ready()

        def turn(name: str, rate: float, length: float, seed: int, progress: Progress) -> list[Reply]:
            arrivals = poisson(rate, length, np.random.default_rng(seed)).tolist()
            requests = [Request(i, at, at + DEADLINE, named[name][0]) for i, at in enumerate(arrivals)]
            return asyncio.run(replay(service.url, requests, pool, seed, progress, forms[name]))

        for name, (of, _) in named.items():
            with stage(f"{task}: {name}, one after the other and in a closed loop") as progress:
                texts = {of: pool[of]}
                warm(service.url, texts, 30, forms[name])
                requests, before = [Request(i, 0.0, DEADLINE, of) for i in range(config.alone)], core_seconds(service)
                (replies,) = asyncio.run(in_turns([service.url], requests, pool, progress, forms[name]))
                used[name] = 1000 * (core_seconds(service) - before) / config.alone
                alone[name] = fmean(reply.seconds for reply in replies)
                borne = service.url, texts, config.probe, config.clients, forms[name]
                closed[name] = asyncio.run(capacity(*borne, most=256))
        for share in SHARES:
            done, cores = {name: list[Reply]() for name in compared}, dict.fromkeys(compared, 0.0)
            with stage(f"{task}: {share:g} of what the large model bears") as progress:
                for number, name, part in turns(config.rounds, compared, progress):
                    before = core_seconds(service)
                    done[name] += turn(name, share * closed[LARGE], config.seconds, number, part)
                    cores[name] += core_seconds(service) - before
            loads += [{"candidate": name, "share": share, **figures(done[name], cores[name])} for name in compared]
        with stage(f"{task}: the highest rates at equal p99") as progress:
            for number, name, part in turns(config.trials, compared, progress):
                rate = next_rate(tried[name], SHARES[0] * closed[LARGE])
                taken = [reply.seconds for reply in turn(name, rate, config.tried, number, part)]
                tried[name].append((rate, bool(np.quantile(taken, 0.99) <= TIMES * alone[LARGE])))
    return Figures(alone, used, closed, {name: highest(trials) for name, trials in tried.items()}, loads)


def plans(cascade: Cascade | None, candidate: str) -> bool:
    """Whether a cascade, if there is one, has a candidate of this name."""
    return cascade is not None and any(each.name == candidate for each in cascade.candidates)


def figures(replies: Sequence[Reply], cores: float) -> dict[str, float]:
    """Return what a load gave, for `cores` seconds of processors; the accuracy is that of answers not cut short."""
    answers = [reply.observation for reply in replies if reply.observation.setting is not None]
    whole = [bool(answer.correct) for answer in answers if not (answer.setting or 0) % 2]
    p50, p99 = np.quantile([reply.seconds for reply in replies], (0.5, 0.99)).tolist()
    late = float(np.quantile([reply.sent_late for reply in replies], 0.99))
    counts = {"requests": len(replies), "answers": len(answers), "cut short": len(answers) - len(whole)}
    shares = {"accuracy": fmean(whole), "core s/1000": 1000 * cores / len(answers)}
    return {**counts, "p50": p50, "p99": p99, "sent late p99": late, **shares}
