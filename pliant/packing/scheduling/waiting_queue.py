"""The sequences that wait, in the order of a policy: a sorted list, since a priority does not change with time."""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pliant.packing.scheduling.forecast import Floats
from pliant.packing.scheduling.request import FOREVER, Prompt

Priority = tuple[int, float, int]
"""Group (the priority that a request names; offline batches come last), key within it, and the id where keys are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A prompt that waits, with what it has generated already if it was preempted."""

    prompt: Prompt
    priority: Priority
    row: Floats  # [G] the distribution of its output (forecast.Grid), recalibrated when it arrived
    reserve: int  # tokens of prompt and output that a reserving policy keeps for it
    generated: int = 0
    cached: int = 0  # tokens whose keys and values lie on the host
    unread: int = 0  # tokens to read before its next one: the prompt, and its output if that is computed again
    turn: int = 0  # its number in the order of first admission; 0: not yet admitted

    @property
    def first_tokens(self) -> int:
        """Tokens in the cache after the iteration that reads everything unread."""
        return self.cached + max(self.unread, 1)


class WaitingQueue:
    """Waiting sequences by priority and by id."""

    def __init__(self) -> None:
        self._order: list[Priority] = []
        self._by_id: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, id: int) -> bool:
        return id in self._by_id

    def __getitem__(self, id: int) -> Waiting:
        return self._by_id[id]

    def __iter__(self) -> Iterator[Waiting]:
        """Iterate by priority. The queue must not change meanwhile."""
        return (self._by_id[priority[2]] for priority in self._order)

    def first(self) -> Waiting | None:
        return self._by_id[self._order[0][2]] if self._order else None

    def last(self) -> Waiting | None:
        return self._by_id[self._order[-1][2]] if self._order else None

    def after(self, priority: Priority) -> Waiting | None:
        """Return the first sequence behind this priority, which need not be in the queue."""
        index = bisect_right(self._order, priority)
        return self._by_id[self._order[index][2]] if index < len(self._order) else None

    def add(self, waiting: Waiting) -> None:
        insort(self._order, waiting.priority)
        self._by_id[waiting.prompt.id] = waiting

    def remove(self, id: int) -> Waiting:
        waiting = self._by_id.pop(id)
        del self._order[bisect_left(self._order, waiting.priority)]
        return waiting


class InOrder(WaitingQueue):
    """Some waiting sequences in an order of their own: for policies that go through the queue from its first one."""

    def __init__(self, sequences: Sequence[Waiting]) -> None:
        super().__init__()
        self._sequences = sequences

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._sequences)

    def first(self) -> Waiting | None:
        return self._sequences[0] if self._sequences else None


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
