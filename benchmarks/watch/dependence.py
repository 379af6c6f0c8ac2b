"""Traffic that depends on itself, and changes in it: false alarms in a fortnight, and hours until a change is noticed.

Ten classes of unequal share, a request a second, blocks of a minute, the alpha of a system's first stream. Requests come
again (sizes of runs are geometric), the odds of one class follow the hours, tenants with other mixes come and go, the mean
of confidences wanders (a first-order autoregression from minute to minute). A change doubles the odds of one class for good.
Nothing knows who sends a request, so each world is as well that of a service whose only client is a gateway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.benchmarks.runs import run_all
from pliant.betting import Floats
from pliant.watch.betting import Ints
from pliant.watch.binning import classes, linear
from pliant.watch.detector import Detector, Stream
from pliant.watch.system import ALPHA, part

DAY, MINUTE, RUNS, FORTNIGHT = 86_400, 60, 40, 14
SHARES = np.array([0.3, 0.2, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02])
CHANGED, WEEK = 3, 9  # the class whose odds change; days until each day of the week was seen whole, at the latest


@dataclass(frozen=True, slots=True)
class Traffic:
    """`repeats`: times that a request comes on average; `daily`: day's odds of a class over the night's; `tenants`: hours
    for which each of three is on or off; `wander`: of the mean of confidences, a logit; `rate`: requests/s; `change`: the
    day from which on the odds are doubled."""

    name: str
    repeats: float = 1.0
    daily: float = 1.0
    tenants: float = 0.0
    wander: float = 0.0
    rate: float = 1.0
    change: float = math.inf

    def minutes(self, days: float, rng: np.random.Generator) -> Iterator[tuple[int, Ints]]:
        """Yield the seconds at the end of each minute, and what was counted in it. Begins at any hour of the week."""
        begin, topic, present = int(rng.integers(7 * DAY)), float(rng.normal()), rng.random(3) < 0.5
        for minute in range(int(days * DAY) // MINUTE):
            second, size = begin + minute * MINUTE, int(rng.poisson(self.rate * MINUTE))
            if self.wander:
                topic = 0.99 * topic + math.sqrt(1 - 0.99**2) * float(rng.normal())
                logits = 1.5 + self.wander * topic + 1.2 * rng.normal(size=size)
                yield second + MINUTE, CONFIDENCES.counts(1 / (1 + np.exp(-logits)))
                continue
            course = self.daily ** (0.5 * math.sin(2 * math.pi * second / DAY))
            shares = moved(SHARES, 2 * course if minute * MINUTE >= self.change * DAY else course)
            if self.tenants:
                present ^= rng.random(3) < MINUTE / (self.tenants * 3600)
                weights = 0.2 + present
                shares = sum(weight * np.roll(shares, 3 * at) for at, weight in enumerate(weights)) / weights.sum()
            yield second + MINUTE, counted(size, self.repeats, shares, rng)


CONFIDENCES = linear(0, 1)
QUIET = (
    *(Traffic(f"requests that come {times} times", repeats=times) for times in (2, 4, 16)),
    Traffic("classes whose odds double from night to day", daily=2.0),
    *(Traffic(f"topics that wander by {wander:g}", wander=wander) for wander in (0.1, 0.2, 0.4)),
    Traffic("three tenants on and off for 4 h", tenants=4.0),
)
CHANGES = (
    Traffic("odds doubled", change=WEEK),
    Traffic("odds doubled beside the daily course", daily=2.0, change=WEEK),
    *(Traffic(f"odds doubled beside requests that come {times} times", repeats=times, change=WEEK) for times in (2, 4)),
    Traffic("odds doubled beside both", repeats=4, daily=2.0, change=WEEK),
    Traffic("odds doubled beside requests that come 16 times", repeats=16, change=WEEK),
    Traffic("odds doubled, 20 requests/s", rate=20.0, change=WEEK),
    Traffic("odds doubled, a request in 20 s", rate=0.05, change=WEEK),
)


def dependence(context: Context) -> Measured:
    """Count false alarms and hours, `RUNS` runs of each world."""
    worlds = (*QUIET, *CHANGES)
    jobs = [(world, seed) for world in worlds for seed in range(RUNS)]
    with context.stage("traffic that depends on itself") as progress:
        alarms = run_all(alarm_of, jobs, 2, progress)
    targets, rows = [], []
    for number, world in enumerate(worlds):
        days = np.array(alarms[number * RUNS : (number + 1) * RUNS])
        if math.isinf(world.change):
            false = int(np.isfinite(days).sum())
            targets.append(Target(f"{world.name}: false alarms in {RUNS} fortnights", false, "<=", 1))
            continue
        hours = 24 * (days - world.change)  # below 0: a false alarm
        rows.append({"change": world.name, "least, median, worst": np.quantile(hours, (0, 0.5, 1)).tolist()})
        targets.append(Target(f"{world.name}: noticed after, median", float(np.median(hours)), "<=", 4.0, "h"))
    return targets, {"changes": rows}


def alarm_of(job: tuple[Traffic, int]) -> float:
    """Return the day of the alarm in a world; infinite without one."""
    world, seed = job
    kind = CONFIDENCES if world.wander else classes([str(label) for label in range(len(SHARES))])
    detector, days = Detector(Stream("x", kind, part(0, ALPHA))), min(FORTNIGHT, world.change + 4)
    for number, (seconds, block) in enumerate(world.minutes(days, np.random.default_rng([seed, 7])), 1):
        if detector.update(block, seconds):
            return number * MINUTE / DAY
    return math.inf


def counted(size: int, repeats: float, shares: Floats, rng: np.random.Generator) -> Ints:
    """Return the counts [classes] of so many requests, each of which comes several times in a row."""
    if repeats == 1 or not size:
        return rng.multinomial(size, shares)
    runs = np.diff(np.minimum(np.cumsum(rng.geometric(1 / repeats, size)), size), prepend=0)
    return np.bincount(rng.choice(len(shares), size, p=shares), runs, len(shares)).astype(np.int64)


def moved(shares: Floats, odds: float) -> Floats:
    """Return the shares with the odds of one class multiplied, the others in proportion."""
    share = shares[CHANGED] * odds / (1 - shares[CHANGED] + shares[CHANGED] * odds)
    others = shares * (1 - share) / (1 - shares[CHANGED])
    result: Floats = np.where(np.arange(len(shares)) == CHANGED, share, others)
    return result
