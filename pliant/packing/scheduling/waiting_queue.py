"""Who waits, in the order that a policy gives: a sorted list, since a place depends on nothing that changes with time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

from pliant.packing.scheduling.forecast import Floats
from pliant.packing.scheduling.request import Prompt

Place = tuple[int, float, int]
"""Group (an offline batch behind all others), key within it, and the order of arrival where keys are equal."""


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A prompt that waits, with what it has made already if it was preempted."""

    prompt: Prompt
    place: Place
    row: Floats  # [G] what is forecast of its output (forecast.Grid), as recalibrated when it came
    reserve: int  # tokens of prompt and output that a policy with reservations would keep for it
    made: int = 0
    cached: int = 0  # tokens whose keys and values lie on the host
    unread: int = 0  # of the prompt (and of what was made, where that is computed again) before its next token
    turn: int = 0  # in which order it was first admitted; 0: not yet

    @property
    def first_tokens(self) -> int:
        """Tokens in the cache after the first iteration that reads everything unread."""
        return self.cached + max(self.unread, 1)


class WaitingQueue:
    def __init__(self) -> None:
        self._places: list[Place] = []
        self._by_id: dict[int, Waiting] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, id: int) -> bool:
        return id in self._by_id

    def __getitem__(self, id: int) -> Waiting:
        return self._by_id[id]

    def __iter__(self) -> Iterator[Waiting]:
        """In order. The line must not change meanwhile."""
        return (self._by_id[place[2]] for place in self._places)

    def first(self) -> Waiting | None:
        return self._by_id[self._places[0][2]] if self._places else None

    def last(self) -> Waiting | None:
        return self._by_id[self._places[-1][2]] if self._places else None

    def after(self, place: Place) -> Waiting | None:
        """The first whose place comes after this one, which nobody need have."""
        at = bisect_right(self._places, place)
        return self._by_id[self._places[at][2]] if at < len(self._places) else None

    def add(self, waiting: Waiting) -> None:
        insort(self._places, waiting.place)
        self._by_id[waiting.prompt.id] = waiting

    def remove(self, id: int) -> Waiting:
        waiting = self._by_id.pop(id)
        del self._places[bisect_left(self._places, waiting.place)]
        return waiting
