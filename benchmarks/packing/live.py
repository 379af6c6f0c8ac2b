"""Chats beyond what the machine bears, live under two policies: the same requests to each, in turns of a stretch.

Services of the same champion are up at once, one a policy, and one of them is asked at a time: first the one, then the
other, then the other way round, so that whatever else the machine does meets both alike. A stretch begins and ends with
nothing to do. How many chats are beyond what the machine bears is found with the service without predictions alone: first
with always so many clients that each have one chat open, then with short loads, until it answers some in time and fails
many (clients on the service's own core take much from it, on another nothing). Each chat has a deadline, which the service
knows: what is late by then it drops, under either policy, and the client counts it as not answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.endpoint import serving
from benchmarks.load_generator import Form, Reply, capacity, one_by_one, replay
from benchmarks.packing.load import Question, form
from benchmarks.packing.soak import status_of
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.workload import poisson
from serving.launch import Service

OURS, RIVAL = "default", "paged"
HEADINGS = ("policy", "chats", "in time", "in time/s", "tokens/s in time", "p50 ms", "p90 ms", "preemptions")
WARM_DEADLINE = 60.0  # seconds, of chats that are not measured


@dataclass(frozen=True, slots=True)
class ContestConfig:
    """`overload`: arrivals over what the rival answers to `clients`. `places`: a deadline is the time of so many answers.

    At most `tries` loads of `trial` seconds raise the overload while the rival answers more than `some` of them in time, and
    lower it while it answers fewer than `few`.
    """

    policies: tuple[str, ...] = (OURS, RIVAL)
    stretches: int = 2
    seconds: float = 3.0  # of arrivals, a stretch
    overload: float = 1.5
    tries: int = 3
    trial: float = 1.2
    some: float = 0.6
    few: float = 0.25
    places: int = 40
    clients: int = 32
    probe: float = 2.0  # seconds
    temperature: float = 0.7
    warm: int = 4
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fared:
    """How the chats of all stretches fared under one policy. Times in seconds."""

    policy: str
    replies: tuple[Reply, ...]
    seconds: float  # from the first arrival to the last answer, over the stretches
    preemptions: int

    @property
    def took(self) -> NDArray[np.float64]:
        """[n] ascending, from arrival to answer, of those that were answered in time."""
        return np.sort([(one.answered or 0.0) - one.request.arrival for one in self._in_time()])

    @property
    def in_time(self) -> float:
        """Share of all chats."""
        return len(self._in_time()) / max(len(self.replies), 1)

    @property
    def goodput(self) -> float:
        """Answers in time a second."""
        return len(self._in_time()) / self.seconds

    @property
    def tokens(self) -> float:
        """Of the answers in time, a second. What a reply's setting holds are its tokens (benchmarks/packing/load.py)."""
        return sum(one.setting or 0 for one in self._in_time()) / self.seconds

    def _in_time(self) -> list[Any]:
        seen = [one.observation for one in self.replies]
        return [one for one in seen if one.answered is not None and one.answered <= one.request.deadline]

    def row(self) -> tuple[str, ...]:
        quantiles = np.quantile(self.took, (0.5, 0.9)) if len(self.took) else (np.nan, np.nan)
        times = (f"{1e3 * one:,.0f}" for one in quantiles)
        made = f"{self.in_time:.1%}", f"{self.goodput:.1f}", f"{self.tokens:,.0f}"
        return self.policy, str(len(self.replies)), *made, *times, str(self.preemptions)


@dataclass(frozen=True, slots=True)
class Contest:
    """`borne`: chats a second that the rival answers; `rate`: that came; `deadline`: seconds of each."""

    borne: float
    rate: float
    deadline: float
    fared: Mapping[str, Fared]

    @property
    def ahead(self) -> float:
        """Our answers in time over the rival's."""
        return self.fared[OURS].goodput / max(self.fared[RIVAL].goodput, 1e-9)

    def plain(self) -> dict[str, Any]:
        rows = [dict(zip(HEADINGS, one.row(), strict=True)) for one in self.fared.values()]
        return {"borne": self.borne, "rate": self.rate, "deadline": self.deadline, "policies": rows}


def contest(name: str, pool: Sequence[Question], config: ContestConfig, progress: Progress = silent) -> Contest:
    """All stretches of the champion `name` under every policy. Raises `PliantError` where a service fails."""
    how, by_name = form(name, config.temperature, deadlines=True), {name: pool}
    with _services(config.policies) as services:
        progress(1, 10)
        for service in services.values():
            _warm(service, name, by_name, how, config)
        rival = services[RIVAL]
        borne = asyncio.run(capacity(rival.url, by_name, config.probe, config.clients, how))
        config = replace(config, overload=_overload(rival, name, pool, borne, config))
        progress(3, 10)
        before = {policy: _preemptions(service, name) for policy, service in services.items()}
        replies, seconds = _in_turns(services, name, pool, borne, config, share(progress, 30, 98))
        fared = {
            policy: Fared(policy, tuple(replies[policy]), seconds[policy], _preemptions(one, name) - before[policy])
            for policy, one in services.items()
        }
    progress(10, 10)
    return Contest(borne, config.overload * borne, config.places / borne, fared)


def _overload(rival: Service, name: str, pool: Sequence[Question], borne: float, config: ContestConfig) -> float:
    """The overload at which the rival answers some chats in time and fails many, by the rival's answers alone."""
    overload, how = config.overload, form(name, config.temperature, deadlines=True)
    for number in range(config.tries):
        trial = replace(config, overload=overload, seconds=config.trial, seed=config.seed + 1)
        asked = stretch(name, borne, number, trial)
        replies = asyncio.run(replay(rival.url, asked, {name: pool}, config.seed, silent, how))
        in_time = Fared(RIVAL, tuple(replies), config.trial, 0).in_time
        if in_time > config.some:
            overload *= 1.4
        elif in_time < config.few:
            overload /= 1.25
        else:
            break
    return overload


def _in_turns(
    services: Mapping[str, Service],
    name: str,
    pool: Sequence[Question],
    borne: float,
    config: ContestConfig,
    progress: Progress,
) -> tuple[dict[str, list[Reply]], dict[str, float]]:
    replies: dict[str, list[Reply]] = {policy: [] for policy in services}
    seconds, how, done = dict.fromkeys(services, 0.0), form(name, config.temperature, deadlines=True), 0
    for number in range(config.stretches):
        asked = stretch(name, borne, number, config)
        order = list(services) if number % 2 == 0 else list(services)[::-1]
        for policy in order:
            told = share(progress, 100 * done // _turns(config), 100 * (done + 1) // _turns(config))
            found = asyncio.run(replay(services[policy].url, asked, {name: pool}, config.seed, told, how))
            ends = [one.observation.answered for one in found if one.observation.answered is not None]
            seconds[policy] += max((*ends, asked[-1].arrival))
            replies[policy] += found
            done += 1
    return replies, seconds


def _turns(config: ContestConfig) -> int:
    return config.stretches * len(config.policies)


def stretch(name: str, borne: float, number: int, config: ContestConfig) -> list[Request]:
    """The chats of one stretch, the same for every policy: at Poisson times, each with its deadline and its own question."""
    rng = np.random.default_rng([config.seed, number])
    times = poisson(config.overload * borne, config.seconds, rng)
    first = number * round(2 * config.overload * borne * config.seconds)  # so that no question comes in two stretches
    within = config.places / borne
    return [Request(first + at, float(came), float(came) + within, name) for at, came in enumerate(times)]


@contextmanager
def _services(policies: Sequence[str]) -> Iterator[dict[str, Service]]:
    """One a policy, started side by side."""
    with ExitStack() as stack:

        def start(policy: str) -> Service:
            return stack.enter_context(serving("packing", policy=policy, refresh_seconds=0.0))

        with ThreadPoolExecutor(len(policies)) as threads:
            yield dict(zip(policies, list(threads.map(start, policies)), strict=True))


def _warm(
    service: Service, name: str, pool: Mapping[str, Sequence[Question]], how: Form, config: ContestConfig
) -> None:
    asked = [Request(number, 0.0, WARM_DEADLINE, name) for number in range(config.warm)]
    asyncio.run(one_by_one(service.url, asked, pool, form=how))


def _preemptions(service: Service, name: str) -> int:
    engine = next(one["engine"] for one in status_of(service.url)["models"] if one["name"] == name)
    return int(engine["preemptions"])


def details(found: Contest, config: ContestConfig) -> dict[str, Any]:
    """For JSON."""
    return {"config": asdict(config), **found.plain()}
