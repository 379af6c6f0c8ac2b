"""The deadlines of requests, by which the ones that come too late are dropped."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.packing.scheduling.waiting_queue import Waiting


class Deadlines:
    """The deadlines of requests that wait or run, and of some that have ended."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    @property
    def next(self) -> float:
        """Return the first one."""
        return self._heap[0][0] if self._heap else FOREVER

    def add(self, prompt: Prompt) -> None:
        if prompt.deadline < FOREVER:
            heapq.heappush(self._heap, (prompt.deadline, prompt.id))

    def passed(self, now: float, known: Callable[[int], Waiting | None]) -> list[int]:
        """Return the ids of those whose deadline has passed. `known`: the sequence of an id that waits or runs."""
        late = []
        while self._heap and self._heap[0][0] < now:
            id = heapq.heappop(self._heap)[1]
            waiting = known(id)  # None or another request of this id, if the former one has ended
            if waiting is not None and waiting.prompt.deadline < now:
                late.append(id)
        return list(dict.fromkeys(late))
