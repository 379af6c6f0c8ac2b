"""Drives a scheduler in virtual time: one heap of events, no sleeping, no threads.

What a launch does is up to the `execute` callback, and how long it takes to a `Course` of the world, if there is one.
This file only keeps the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from pliant.errors import SchedulerError
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Cancelled,
    Drop,
    Event,
    Failed,
    Finished,
    Journal,
    JournalEntry,
    Launch,
    Request,
    Scheduler,
    Woke,
)
from pliant.worlds import Course, FrontDoor

Execute = Callable[[Launch], tuple[float, Finished | Failed]]
"""Returns the seconds until a launch ends, and the event with which it ends."""

Observer = Callable[[JournalEntry], None]

Retry = Callable[[Request, float], Request | None]
"""Returns the request that a client sends in place of one that was refused, or answered too late, at this time."""


@dataclass(frozen=True, slots=True)
class _AtSocket:
    """A request has reached the front door."""

    request: Request


def simulate(
    scheduler: Scheduler,
    requests: Iterable[Request],
    execute: Execute,
    observe: Observer | None = None,
    leaving: Iterable[tuple[float, int]] = (),
    course: Course | None = None,
    door: FrontDoor | None = None,
    retry: Retry | None = None,
) -> Journal:
    """Run `requests` (any order) through `scheduler` until nothing is left to happen, and return the journal.

    `leaving`: when the client of a request leaves, by the request's id; without effect where it has its answer by then.
    `course`: the world in which launches take their seconds; without it `execute` has the last word. `door`: what
    requests and answers have to pass. `retry`: what clients send again; its request must have an id of its own.

    At the same time ends come before arrivals, and then events in the order in which they were caused. `observe` is
    called with every new entry (for progress and invariants). Raises `SchedulerError` if the scheduler breaks its
    contract.
    """
    simulation = _Simulation(scheduler, execute, course, door or FrontDoor(), retry)
    for request in requests:
        simulation.send(request)
    for at, id in leaving:
        simulation.push(at, 2, Cancelled(id))
    return simulation.run(observe)


class _Simulation:
    def __init__(
        self, scheduler: Scheduler, execute: Execute, course: Course | None, door: FrontDoor, retry: Retry | None
    ) -> None:
        self._scheduler, self._execute, self._course, self._door, self._retry = scheduler, execute, course, door, retry
        self._order = count()
        self._heap: list[tuple[float, int, int, Event | _AtSocket]] = []
        self._free_at: dict[int, float] = {}  # by worker: a launch begins when the one before it has ended
        self._requests: dict[int, Request] = {}
        self._pending: set[int] = set()  # have arrived, and have neither an answer nor left

    def push(self, at: float, rank: int, event: Event | _AtSocket) -> None:
        heapq.heappush(self._heap, (at, rank, next(self._order), event))

    def send(self, request: Request) -> None:
        self._requests[request.id] = request
        self.push(request.arrival, 1, _AtSocket(request) if self._door.seconds else Arrived(request))

    def run(self, observe: Observer | None) -> Journal:
        journal: Journal = []
        now = float("-inf")
        event: Event | _AtSocket
        while True:
            wake = self._scheduler.wake_at()
            if wake is not None and (not self._heap or wake < self._heap[0][0]):
                event, at = Woke(), wake
            elif self._heap:
                at, _, _, event = heapq.heappop(self._heap)
            else:
                return journal
            now = max(now, at)
            if isinstance(event, _AtSocket):
                self.push(self._door.passes(now), 1, Arrived(event.request))
                continue
            if isinstance(event, Cancelled) and event.request not in self._pending:
                continue
            if isinstance(event, Arrived):
                event = Arrived(self._door.admit(event.request, now))
            actions = self._scheduler.handle(event, now)
            self._note(event, actions, now)
            journal.append(JournalEntry(now, event, tuple(actions)))
            if observe is not None:
                observe(journal[-1])
            wake = self._scheduler.wake_at()
            if isinstance(event, Woke) and wake is not None and wake <= now:
                late = f"asks to be woken at {wake}, which is not later"
                raise SchedulerError(f"after Woke at {now} the scheduler {late}")

    def _note(self, event: Event, actions: list[Action], now: float) -> None:
        """Begin launches, deliver answers and refusals, and have clients send again."""
        match event:
            case Arrived(request):
                self._pending.add(request.id)
            case Cancelled(id):
                self._pending.discard(id)
        for action in actions:
            match action:
                case Launch():
                    self._launch(action, now)
                case Answer(request=id) | Drop(request=id):
                    self._pending.discard(id)
                    self._deliver(self._requests[id], now, isinstance(action, Answer))

    def _launch(self, launch: Launch, now: float) -> None:
        seconds, end = self._execute(launch)
        begin = max(now, self._free_at.get(launch.worker, now))
        if self._course is not None and isinstance(end, Finished):
            length = max((self._requests[id].length for id in launch.requests), default=0)
            if launch.kind == "run":
                end = self._course.end(launch, seconds, end, begin, length)
                seconds = end.seconds
        self._free_at[launch.worker] = begin + seconds
        self.push(self._free_at[launch.worker], 0, end)

    def _deliver(self, request: Request, now: float, answered: bool) -> None:
        at = self._door.passes(now) if self._door.seconds else now
        self._door.delivered[request.id] = at
        if self._retry is not None and not (answered and at <= request.deadline):
            again = self._retry(request, at)
            if again is not None:
                self.send(again)
