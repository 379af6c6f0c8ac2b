"""The deadlines of requests, by which the ones that come too late are dropped."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from pliant.packing.scheduling.forecast import Grid
from pliant.packing.scheduling.request import FOREVER, Prompt
from pliant.packing.scheduling.running import Running
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

    def passed(self, now: float, known: Callable[[int], Waiting | None], finishes: Callable[[int], bool]) -> list[int]:
        """Return the ids of those whose deadline has passed, but for those that are to be finished all the same.

        `known`: the sequence of an id that waits or runs. Those to be finished are looked at again the next time.
        """
        late, finishing = [], []
        while self._heap and self._heap[0][0] < now:
            id = heapq.heappop(self._heap)[1]
            waiting = known(id)  # None or another request of this id, if the former one has ended
            if waiting is None or waiting.prompt.deadline >= now:
                continue
            if finishes(id):
                finishing.append((now, id))
            else:
                late.append(id)
        for entry in finishing:
            heapq.heappush(self._heap, entry)
        return list(dict.fromkeys(late))


def nearly_done(running: Running, grid: Grid, id: int) -> bool:
    """Whether a running text is expected to hold less over its coming iterations than it has held over its past ones.

    What it holds is counted in tokens, as its pages are. So finishing it costs less than dropping it wastes.
    """
    at = running.at(id)
    generated, cached = (int(running.column(name)[at]) for name in ("generated", "cached"))
    alive = grid.alive(running.rows[at : at + 1], np.array([float(generated)]), grid.horizons)[0]
    left = float(np.trapezoid(alive, grid.horizons)) + 1.0
    return left * (cached + left / 2) < generated * (cached - generated / 2)
