"""More requests than a service's HTTP can carry, by the benches' load generator in a process of its own."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat, takewhile
from operator import mul
from statistics import median
from typing import Any

import numpy as np
import psutil

from pliant.benchmarks.load_generator import Form, Parsed, Reply, allow_many_connections, replay
from pliant.protocol import Request
from pliant.workload import poisson
from qa.clients import apart
from qa.targets import Targets, bearer, say

STEP = 1.35  # from one rate to the next, in search of the best
PAST = 2  # rates that must be worse than the best before the search ends
FIRST, LAST = 40.0, 5000.0  # requests a second that are offered, the least and the most
SECONDS, ROUNDS = 8.0, 5

Load = Sequence[tuple[float, str]]
"""Seconds from the start, and the tenant that asks then."""


def offer(url: str, path: str, body: bytes, deadline: float, load: Load, keys: Mapping[str, str] = {}) -> list[Reply]:
    """Send the body at each time of a load, with the tenant's key. An answer is `correct` if it says that it is on time."""

    def read(answer: Any, _example: Any) -> Parsed:
        return Parsed('"on_time": true' in json.dumps(answer), 0, None, math.nan)

    requests = [Request(i, at, at + deadline, path, tenant=name) for i, (at, name) in enumerate(load)]
    form = Form(lambda _request, _example: body, read, path, headers=lambda each: bearer(keys.get(each.tenant, "")))
    return asyncio.run(replay(url, requests, {path: [body]}, form=form))


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one rate: how many were in time, and how many said `on_time` although the client had them too late."""

    sent: int
    useful: int
    answered: int
    false: int
    refused: int
    lag: float  # most seconds that a request was sent too late

    @classmethod
    def of(cls, replies: Sequence[Reply]) -> Answers:
        """Seconds count from the sending, as the clients are overloaded themselves."""
        good = [reply.observation for reply in replies if reply.status == 200]
        lags = [reply.sent_late for reply in replies if reply.status == 200]
        late = [
            each for each, lag in zip(good, lags, strict=True) if (each.answered or 0.0) - lag > each.request.deadline
        ]
        false, refused = (
            sum(bool(each.correct) for each in late),
            sum(reply.status not in (0, 200) for reply in replies),
        )
        return cls(
            len(replies), len(good) - len(late), len(good), false, refused, max(each.sent_late for each in replies)
        )


@dataclass(frozen=True, slots=True)
class Overload:
    """What came of each rate: in search of the best one, then in rounds at that one and at multiples of its answers.

    The same rate gives answers that differ by a tenth from one minute to the next, so a round offers all rates in turn, and
    the median of the rounds counts.
    """

    offer: Callable[[Load], list[Reply]]
    search: dict[float, Answers] = field(default_factory=dict)
    rounds: list[dict[int, Answers]] = field(default_factory=list)

    def measure(self, rates: Sequence[float], times: Sequence[int]) -> None:
        """Look for the rate at which most answers are in time, among these or anew, then offer that and more in turns."""
        for rate in rates or takewhile(LAST.__ge__, accumulate(repeat(STEP), mul, initial=FIRST)):
            useful = [row.useful for row in self.search.values()]
            if not rates and len(useful) > PAST and max(useful[-PAST:]) < max(useful[:-PAST]):
                break  # the latest are all worse than one before them
            self.search[rate] = self._at(rate, "search")
        for number in range(ROUNDS):
            # In the opposite order every other time, so that no rate always follows the same one.
            order = sorted((1, *times), reverse=number % 2 == 1)
            self.rounds.append({each: self._at(self.rate(each), f"round {number + 1}, {each}x") for each in order})

    def _at(self, rate: float, what: str) -> Answers:
        arrivals = poisson(rate, SECONDS, np.random.default_rng(int(rate)))
        answers = Answers.of(self.offer([(float(at), "") for at in arrivals]))
        say(f"{what}, {rate:.0f}/s: {answers}")
        time.sleep(1.0)
        return answers

    def rate(self, times: int) -> float:
        """Return the rate of `times`; 1: the one with the most answers in time, else so many times those."""
        best = max(self.search, key=lambda rate: self.search[rate].useful)
        return best if times == 1 else times * self.search[best].useful / SECONDS

    def share(self, times: int) -> float:
        """Return the answers in time at so many times, over those at the best rate in the same round, in the median."""
        return median(row[times].useful / max(row[1].useful, 1) for row in self.rounds)

    def total(self, figure: str) -> int:
        """Return the sum of a figure over all rates and rounds."""
        rows = [*self.search.values(), *(row for each in self.rounds for row in each.values())]
        return sum(getattr(row, figure) for row in rows)

    def judge(self, targets: Targets, times: Sequence[int]) -> None:
        """The useful answers must stay, and no late one may say that it is on time."""
        for each in times:
            name = f"useful answers at {each}x, {self.rate(each):.0f}/s, over the best, median of {ROUNDS} rounds"
            targets.at_least(name, self.share(each), 0.9)
        false = 100 * self.total("false") / max(1, self.total("answered"))
        targets.at_most("on_time said of late answers, of all answers", false, 0.1, "%")


def overloaded(
    url: str, path: str, body: bytes, deadline: float, times: Sequence[int], rates: Sequence[float] = ()
) -> Overload:
    """Offer a service more than it bears, and return what came of it."""
    with apart(initializer=take_a_core) as pool:
        overload = Overload(lambda load: pool.submit(offer, url, path, body, deadline, load).result())
        overload.measure(rates, times)
    return overload


def take_a_core() -> None:
    """Keep this process to the last core, where there are two."""
    allow_many_connections()
    if len(cores := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, cores[-1:])


def leave_a_core(supervisor: int) -> None:
    """Keep a service, all its processes and threads, off the core of the clients, where there are two."""
    if len(cores := sorted(os.sched_getaffinity(0))) < 2:
        return
    for process in (family := psutil.Process(supervisor), *family.children(recursive=True)):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores[:-1])
