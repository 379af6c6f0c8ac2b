"""The sequences that wait, in the order of a policy: a sorted list, since a priority does not change with time.

Tenants share a device by tokens read and generated, and by pages held over time. The unit of service is one iteration of
the whole device: a sequence receives its share of the iteration's tokens and of the pages, in every iteration in which it
runs. It is charged for what its forecast says when it is admitted, and corrected when it leaves (virtual token counters,
see pliant/fairness.py). Where all places of an iteration are taken, a sequence of a tenant that has received much less still
joins, and one of the tenant that has received most pauses: it keeps its pages and goes on when there is a place again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Protocol, TypeVar

from pliant.fairness import Fairness, FairnessConfig
from pliant.packing.scheduling.forecast import Floats, mean
from pliant.packing.scheduling.request import FOREVER, Memory, Prompt

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


SHARING = FairnessConfig(burst=16.0, slack=0.0)
AHEAD = 8.0  # of a tenant's counter before another's, from which on its sequences pause for the other's


class Delays:
    """How long requests waited recently, by tenant, so that a flood's long waits reorder nobody else's requests.

    `weight`: of the latest request in a tenant's mean. As many tenants are remembered as SHARING says.
    """

    def __init__(self, weight: float) -> None:
        self._weight = weight
        self._seconds: dict[str, float] = {}  # the tenant noted last at the end

    def of(self, tenant: str) -> float:
        """Return the mean in seconds; 0 for a tenant that is not remembered."""
        return self._seconds.get(tenant, 0.0)

    def forget(self, tenant: str) -> None:
        """Take the tenant's mean for 0: nobody waits, and the waits before this moment say nothing of those that come."""
        self._seconds.pop(tenant, None)

    def note(self, tenant: str, seconds: float) -> None:
        """Note how long a request of the tenant has waited."""
        recent = self._seconds.pop(tenant, 0.0)
        self._seconds[tenant] = recent + self._weight * (seconds - recent)
        if len(self._seconds) > SHARING.remembered:
            del self._seconds[next(iter(self._seconds))]


def service(memory: Memory, tokens: int, generated: int, cached: int) -> float:
    """Return the service of a sequence that reads or generates `tokens`, of which it generates `generated`.

    `cached`: the tokens that it holds at the end. What its pages hold is counted from its first generated token on.
    """
    held = _held(cached, memory.page_tokens) - _held(max(cached - generated, 0), memory.page_tokens)
    return tokens / memory.step_tokens + held / memory.pages


def _held(tokens: int, page_tokens: int) -> int:
    """Return the pages of a sequence summed over the iterations in which it grows from 1 to `tokens` tokens."""
    pages, rest = divmod(tokens, page_tokens)
    return page_tokens * pages * (pages + 1) // 2 + rest * (pages + 1)


def predicted(memory: Memory, waiting: Waiting) -> float:
    """Return the service that a waiting sequence needs by its forecast."""
    output = max(round(mean(waiting.prompt.forecast)) - waiting.generated, 1)
    return service(memory, waiting.unread + output, output, waiting.cached + waiting.unread + output)


def predicted_of(memory: Memory, prompt: Prompt) -> float:
    """Return the service that a prompt needs by its forecast, from its first token on."""
    output = max(round(mean(prompt.forecast)), 1)
    return service(memory, prompt.tokens + output, output, prompt.tokens + output)


def received(memory: Memory, admitted: Waiting, values: Mapping[str, int]) -> float:
    """Return the service of a sequence since it was admitted. `values`: its columns as it leaves."""
    tokens = values["cached"] - admitted.cached - values["taken"]
    return service(memory, tokens, values["generated"] - admitted.generated, values["cached"])


class Owned(Protocol):
    """What waits for a tenant."""

    @property
    def prompt(self) -> Prompt: ...


W = TypeVar("W", bound=Owned)


def in_turn(queue: Iterable[W], fairness: Fairness, service_of: Callable[[W], float]) -> Iterator[W]:
    """Yield what waits, each time the first of the tenant that would have received least by then."""
    queues: dict[str, list[W]] = {}
    for waiting in queue:
        queues.setdefault(waiting.prompt.tenant, []).append(waiting)
    heap = [(fairness.received(name), name, iter(sequences)) for name, sequences in queues.items()]
    heapify(heap)
    while heap:
        counter, name, sequences = heap[0]
        try:
            waiting = next(sequences)
        except StopIteration:
            heappop(heap)
            continue
        yield waiting
        heapreplace(heap, (counter + service_of(waiting) / waiting.prompt.weight, name, sequences))


def can_pause(tenant: str, running: Mapping[str, int], fairness: Fairness) -> int:
    """Return how many of the sequences that run pause for one of this tenant. `running`: their number by tenant."""
    limit = fairness.received(tenant) + AHEAD
    return sum(number for name, number in running.items() if fairness.received(name) > limit)


def with_places(
    queue: WaitingQueue, fairness: Fairness, memory: Memory, running: Counter[str], places: int
) -> list[Waiting]:
    """Return the waiting sequences, in turn, for which there are places or sequences that can pause.

    `running`: how many sequences run, by tenant. `places`: sequences that an iteration may have.
    """
    count, chosen = running.total(), list[Waiting]()
    for waiting in islice(in_turn(queue, fairness, partial(predicted, memory)), memory.sequences):
        if count + len(chosen) - can_pause(waiting.prompt.tenant, running, fairness) < places:
            chosen.append(waiting)
    return chosen


def beyond_places(
    excess: int, running: Mapping[int, Waiting], fairness: Fairness, owner: Callable[[Prompt], str]
) -> set[int]:
    """Return so many running sequences that pause: those of the tenants that received most, the last admitted first."""
    received = {id: fairness.received(owner(waiting.prompt)) for id, waiting in running.items()}
    order = sorted(running, key=lambda id: (received[id], running[id].turn), reverse=True)
    return set(order[:excess])
