"""Doing nothing clever: requests are served in the order in which they came, whatever anybody believes.

A request is given up when its deadline has passed. Nothing else is refused or reordered, and no seconds are expected.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from pliant.protocol import Action, Answer, Arrived, Drop, Event, Finished, Launch, Request

Choose = Callable[[Sequence[Request]], tuple[int, int]]
"""From the first waiting requests, in order, to how many of them run together (at least one), and with which setting."""


class FirstCome:
    """`workers` devices, numbered from 0; the first `most` waiting requests are what `choose` sees."""

    def __init__(self, workers: int, most: int, choose: Choose) -> None:
        self._most, self._choose = most, choose
        self._free = deque(range(workers))
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Launch] = {}
        self._launches = 0

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return what is to be done now. Knows arrivals and ends of launches that succeed."""
        actions: list[Action] = []
        match event:
            case Arrived(request):
                self._waiting.append(request)
            case Finished(launch):
                ended = self._running.pop(launch)
                self._free.append(ended.worker)
                actions += [Answer(request, launch) for request in ended.requests]
        while self._free and self._waiting:
            if self._waiting[0].deadline <= now:
                actions.append(Drop(self._waiting.popleft().id, "late"))
            else:
                actions.append(self._launch())
        return actions

    def _launch(self) -> Launch:
        first = [self._waiting[at] for at in range(min(self._most, len(self._waiting)))]
        count, setting = self._choose(first)
        requests = tuple(self._waiting.popleft().id for _ in range(count))
        launch = Launch(self._launches, self._free.popleft(), requests, setting)
        self._launches += 1
        self._running[launch.id] = launch
        return launch

    def wake_at(self) -> float | None:
        """Return None: nothing happens but by arrivals and ends."""
        return None

    def check(self) -> None:
        """Raise AssertionError unless devices idle only where nothing waits."""
        assert not (self._free and self._waiting), "a device idles while requests wait"
