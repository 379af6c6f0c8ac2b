"""What is offered in a world: how much its true device can do, when requests come, and what their clients do.

Knows no system. A system says what its true device does in the world of its profile; the rest follows from the world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from pliant.benchmarks.results import Target
from pliant.progress import Progress
from pliant.protocol import Journal, Request, Scheduler
from pliant.simulator import Execute, Retry, simulate
from pliant.workload import Segment
from pliant.worlds import Admit, Course, FrontDoor, World

CLIENTS = ("patient", "retry", "door", "burst")
"""Patient ones; ones that send again; ones behind a front door that is busy; and a burst of ten times the capacity."""
FOR_EVER = "for ever"
"""Ones that send again at once, as long as the load lasts."""

ATTEMPTS = 4  # of a request whose client sends again: 3 times more
BUSY = 0.6  # share of the front door's time that requests at the capacity take
BURST, BURST_SECONDS, BURST_DEADLINES = 10.0, 3.0, 3.0  # times the capacity; at least so long, in seconds, in deadlines
AGAIN = 0.001  # seconds on the way until the request of a client that never gives up is there again
POINTS = 100  # of time at which a world that changes is looked at
LONGEST, SHORTEST = 4.0, 0.25  # the load of a slow device lasts longer, that of a fast one less long, by at most this


def capacity(world: World, seconds: float, launch: float) -> float:
    """Return what the true device does in this world over what the profile says, on average over `seconds`.

    `launch`: seconds of a launch by the profile at the capacity; pauses take from it what a launch has of them.
    """
    at = (np.arange(POINTS) + 0.5) * seconds / POINTS
    factor = world.factor * np.exp(world.drift * at + world.noise**2 / 2)
    for since, step in world.steps:  # each replaces the one before
        following = min((other for other, _ in world.steps if other > since), default=math.inf)
        factor = np.where((at >= since) & (at < following), factor * step, factor)
    begin, end = world.pausing
    paused = np.where((at >= begin) & (at < end), world.pause * world.pause_seconds, 0.0)
    return float((1 / (factor + paused / launch)).mean())


def lasting(world: World, seconds: float, capacity: float) -> float:
    """Return the seconds of the load: about as many requests in every world, and `seconds` in one that changes or pauses."""
    changes = world.steps or world.drift or world.pause
    return seconds if changes else seconds * min(max(1 / capacity, SHORTEST), LONGEST)


def segments(rate: float, seconds: float, clients: str, capacity: float, deadline: float) -> list[Segment]:
    """Return the rates of a load that lasts `seconds`: uneven around `rate`, or with a burst after a quarter of it.

    `capacity`: requests a second of the true device; `deadline`: the typical seconds from arrival to deadline.
    """
    if clients == "burst":
        burst = Segment(BURST * capacity, max(BURST_SECONDS, BURST_DEADLINES * deadline))
        return [Segment(rate, seconds / 4), burst, Segment(rate, seconds * 3 / 4)]
    return [Segment(rate * share, seconds / 4) for share in (0.5, 1.6, 0.7, 1.2)]


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of one run: what they pass, what they send again, and which requests are one question."""

    door: FrontDoor
    retry: Retry | None
    sent: dict[int, Request]  # every request that was sent, by its id
    first: Mapping[int, int]  # id -> id of the request that was sent first

    def answered(self, answers: Iterable[int]) -> set[int]:
        """Return the ids, among those of the answered requests, whose clients had them in time: one a question."""
        in_time = (id for id in answers if self.door.delivered[id] <= self.sent[id].deadline)
        return set({self.first[id]: id for id in in_time}.values())

    def play(self, scheduler: Scheduler, execute: Execute, world: World, seed: int) -> Journal:
        """Return the journal of a scheduler with these clients."""
        course = Course(world, seed)
        return simulate(scheduler, self.sent.values(), execute, course=course, door=self.door, retry=self.retry)


def crowd(load: Iterable[Request], clients: str, capacity: float, admit: Admit | None = None) -> Clients:
    """Return the clients of a load. `capacity`: requests a second of the true device; `admit`: see `FrontDoor`."""
    sent = {request.id: request for request in load}
    first = {id: id for id in sent}
    door = FrontDoor(BUSY / (2 * capacity) if clients == "door" else 0.0, admit)
    retries = {"retry": _again(sent, first, ATTEMPTS), FOR_EVER: _again(sent, first, math.inf)}
    return Clients(door, retries.get(clients), sent, first)


def _again(sent: dict[int, Request], first: dict[int, int], most: float) -> Retry:
    end = max((request.arrival for request in sent.values()), default=0.0) if most == math.inf else math.inf
    pause = AGAIN if most == math.inf else 0.0
    numbers, attempts = count(max(sent, default=-1) + 1), dict.fromkeys(sent, 1)

    def retry(request: Request, now: float) -> Request | None:
        origin = first[request.id]
        if attempts[origin] == most or now > end:
            return None
        attempts[origin] += 1
        within = request.deadline - request.arrival
        at = now + pause
        again = replace(request, id=next(numbers), arrival=at, deadline=at + within)
        sent[again.id], first[again.id] = again, origin
        return again

    return retry


Play = Callable[[str, World, Sequence[Segment], float, int, str], float]
"""From policy, world, load, the requests a second of the true device, seed and the kind of clients to what was earned in
time, each question once."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A system in virtual time; times in seconds. `rivals`: the policies that do nothing clever.

    `deadline`: typical, from arrival to deadline; `seconds`: of a load, as `worlds` wants them; `loads`: times the capacity
    of the true device: one that is 8 times slower is offered an eighth; `batch`: requests of a launch at the capacity;
    `rate`: requests a second of the device by the profile.
    """

    ours: str
    rivals: tuple[str, ...]
    deadline: float
    seconds: float
    loads: tuple[float, ...]
    batch: float
    rate: Callable[[], float]
    play: Play
    own_targets: Callable[[int, Progress], list[Target]] | None = None

    def value(self, policy: str, world: World, load: float, seed: int, clients: str = "patient") -> float:
        """Return the utility, or the answers in time, that a policy gives for each second of a load in this world."""
        true = capacity(world, self.seconds, self.batch / self.rate())
        rate, seconds = true * self.rate(), lasting(world, self.seconds, true)
        parts = segments(load * rate, seconds, clients, rate, self.deadline)
        return self.play(policy, world, parts, rate, seed, clients) / sum(part.seconds for part in parts)
