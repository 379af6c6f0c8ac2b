"""Drives a scheduler in virtual time: one heap of events, no sleeping, no threads.

What a launch does is up to the `execute` callback; this file only keeps the clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import count

from pliant.errors import SchedulerError
from pliant.protocol import (
    Action,
    Arrived,
    Cancelled,
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

Execute = Callable[[Launch], tuple[float, Finished | Failed]]
"""Returns the seconds until a launch ends, and the event with which it ends."""

Observer = Callable[[JournalEntry], None]


def simulate(
    scheduler: Scheduler,
    requests: Iterable[Request],
    execute: Execute,
    observe: Observer | None = None,
    leaving: Iterable[tuple[float, int]] = (),
) -> Journal:
    """Run `requests` (any order) through `scheduler` until nothing is left to happen, and return the journal.

    `leaving`: when the client of a request leaves, by the request's id; without effect where it has its answer by then.

    At the same time ends come before arrivals, and then events in the order in which they were caused. `observe` is
    called with every new entry (for progress and invariants). Raises `SchedulerError` if the scheduler breaks its
    contract.
    """
    journal: Journal = []
    order = count()
    heap: list[tuple[float, int, int, Event]] = [(r.arrival, 1, next(order), Arrived(r)) for r in requests]
    heap += [(at, 2, next(order), Cancelled(request)) for at, request in leaving]
    heapq.heapify(heap)
    now = float("-inf")
    free_at: dict[int, float] = {}  # by worker: a launch begins when the one before it has ended
    pending: set[int] = set()
    while (event_at := _next(heap, scheduler.wake_at())) is not None:
        event, now = event_at[0], max(now, event_at[1])
        if isinstance(event, Cancelled) and event.request not in pending:
            continue
        actions = scheduler.handle(event, now)
        for launch in (action for action in actions if isinstance(action, Launch)):
            seconds, end = execute(launch)
            free_at[launch.worker] = max(now, free_at.get(launch.worker, now)) + seconds
            heapq.heappush(heap, (free_at[launch.worker], 0, next(order), end))
        _note(pending, event, actions)
        journal.append(JournalEntry(now, event, tuple(actions)))
        if observe is not None:
            observe(journal[-1])
        _check_wake(event, now, scheduler.wake_at())
    return journal


def _note(pending: set[int], event: Event, actions: list[Action]) -> None:
    """Keep account of the requests that have arrived and have neither an answer nor left."""
    match event:
        case Arrived(request):
            pending.add(request.id)
        case Cancelled(id):
            pending.discard(id)
    pending.difference_update(action.request for action in actions if not isinstance(action, Launch))


def _next(heap: list[tuple[float, int, int, Event]], wake: float | None) -> tuple[Event, float] | None:
    if wake is not None and (not heap or wake < heap[0][0]):
        return Woke(), wake
    if not heap:
        return None
    at, _, _, event = heapq.heappop(heap)
    return event, at


def _check_wake(event: Event, now: float, wake: float | None) -> None:
    if isinstance(event, Woke) and wake is not None and wake <= now:
        raise SchedulerError(f"after Woke at {now} the scheduler asks to be woken at {wake}, which is not later")
