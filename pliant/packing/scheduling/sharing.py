"""How tenants share a device of packing: by tokens read and generated, and by pages held over time.

The unit of service is one iteration of the whole device: a sequence receives its share of the iteration's tokens and of
the pages, in every iteration in which it runs. It is charged for what its forecast says when it is admitted, and
corrected when it leaves (virtual token counters, see pliant/fairness.py).

Where all places of an iteration are taken, a sequence of a tenant that has received much less still joins, and one of the
tenant that has received most pauses: it keeps its pages and goes on when there is a place again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from heapq import heapify, heappop, heapreplace
from itertools import islice
from typing import Protocol, TypeVar

from pliant.fairness import Fairness, FairnessConfig
from pliant.packing.scheduling.forecast import mean
from pliant.packing.scheduling.request import Memory, Prompt
from pliant.packing.scheduling.waiting_queue import Waiting, WaitingQueue

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
