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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.endpoint import serving_each
from benchmarks.load_generator import Reply, capacity, replay, turns, warm
from benchmarks.packing.chats import Question, form
from benchmarks.packing.soak import status_of
from pliant.progress import Progress, share, silent
from pliant.protocol import Request
from pliant.report import Observation
from pliant.workload import poisson

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
        """Return the seconds [n] ascending from arrival to answer, of those that were answered in time."""
        return np.sort([(chat.answered or 0.0) - chat.request.arrival for chat in self._in_time()])

    @property
    def in_time(self) -> float:
        """Return the share of all chats."""
        return len(self._in_time()) / max(len(self.replies), 1)

    @property
    def goodput(self) -> float:
        """Return the answers in time a second."""
        return len(self._in_time()) / self.seconds

    @property
    def tokens(self) -> float:
        """Return the tokens of the answers in time, a second; a reply's setting holds its tokens (chats.py)."""
        return sum(chat.setting or 0 for chat in self._in_time()) / self.seconds

    def _in_time(self) -> list[Observation]:
        chats = [reply.observation for reply in self.replies]
        return [chat for chat in chats if chat.answered is not None and chat.answered <= chat.request.deadline]

    def row(self) -> tuple[str, ...]:
        quantiles = np.quantile(self.took, (0.5, 0.9)) if len(self.took) else (np.nan, np.nan)
        milliseconds = (f"{1e3 * seconds:,.0f}" for seconds in quantiles)
        speed = f"{self.in_time:.1%}", f"{self.goodput:.1f}", f"{self.tokens:,.0f}"
        return self.policy, str(len(self.replies)), *speed, *milliseconds, str(self.preemptions)


@dataclass(frozen=True, slots=True)
class Contest:
    """`borne`: chats a second that the rival answers; `rate`: chats a second that came; `deadline`: seconds of each."""

    borne: float
    rate: float
    deadline: float
    fared: Mapping[str, Fared]

    @property
    def ahead(self) -> float:
        """Return our answers in time over the rival's."""
        return self.fared[OURS].goodput / max(self.fared[RIVAL].goodput, 1e-9)

    def plain(self) -> dict[str, Any]:
        rows = [dict(zip(HEADINGS, fared.row(), strict=True)) for fared in self.fared.values()]
        return {"borne": self.borne, "rate": self.rate, "deadline": self.deadline, "policies": rows}


def contest(name: str, pool: Sequence[Question], config: ContestConfig, progress: Progress = silent) -> Contest:
    """Serve all stretches by the champion `name` under every policy. Raises `PliantError` where a service fails."""
    chat, by_name = form(name, config.temperature), {name: pool}
    options = {policy: {"policy": policy, "refresh_seconds": 0.0} for policy in config.policies}
    with serving_each("packing", options) as addresses:
        progress(1, 10)
        for url in addresses.values():
            warm(url, by_name, config.warm, chat, WARM_DEADLINE)
        rival = addresses[RIVAL]
        borne = asyncio.run(capacity(rival, by_name, config.probe, config.clients, chat))
        config = replace(config, overload=_overload(rival, name, pool, borne, config))
        progress(3, 10)
        before = {policy: _preemptions(url, name) for policy, url in addresses.items()}
        replies, seconds = _in_turns(addresses, name, pool, borne, config, share(progress, 30, 98))
        fared = {}
        for policy, url in addresses.items():
            preemptions = _preemptions(url, name) - before[policy]
            fared[policy] = Fared(policy, tuple(replies[policy]), seconds[policy], preemptions)
    progress(10, 10)
    return Contest(borne, config.overload * borne, config.places / borne, fared)


def _overload(rival: str, name: str, pool: Sequence[Question], borne: float, config: ContestConfig) -> float:
    """Return the overload at which the rival answers some chats in time and fails many, by its answers alone."""
    overload, chat = config.overload, form(name, config.temperature)
    for number in range(config.tries):
        trial = replace(config, overload=overload, seconds=config.trial, seed=config.seed + 1)
        requests = stretch(name, borne, number, trial)
        replies = asyncio.run(replay(rival, requests, {name: pool}, config.seed, silent, chat))
        in_time = Fared(RIVAL, tuple(replies), config.trial, 0).in_time
        if in_time > config.some:
            overload *= 1.4
        elif in_time < config.few:
            overload /= 1.25
        else:
            break
    return overload


def _in_turns(
    addresses: Mapping[str, str],
    name: str,
    pool: Sequence[Question],
    borne: float,
    config: ContestConfig,
    progress: Progress,
) -> tuple[dict[str, list[Reply]], dict[str, float]]:
    replies: dict[str, list[Reply]] = {policy: [] for policy in addresses}
    seconds, chat = dict.fromkeys(addresses, 0.0), form(name, config.temperature)
    for number, policy, part in turns(config.stretches, list(addresses), progress):
        requests = stretch(name, borne, number, config)
        answers = asyncio.run(replay(addresses[policy], requests, {name: pool}, config.seed, part, chat))
        seconds[policy] += max(*(reply.observation.answered or 0.0 for reply in answers), requests[-1].arrival)
        replies[policy] += answers
    return replies, seconds


def stretch(name: str, borne: float, number: int, config: ContestConfig) -> list[Request]:
    """Return the chats of one stretch, the same for every policy: at Poisson times, each with a question of its own."""
    rng = np.random.default_rng([config.seed, number])
    times = poisson(config.overload * borne, config.seconds, rng)
    first = number * round(2 * config.overload * borne * config.seconds)  # so that no question comes in two stretches
    within = config.places / borne
    return [Request(first + at, float(came), float(came) + within, name) for at, came in enumerate(times)]


def _preemptions(url: str, name: str) -> int:
    engine = next(model["engine"] for model in status_of(url)["models"] if model["name"] == name)
    return int(engine["preemptions"])
