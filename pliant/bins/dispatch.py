"""Which device serves a request where each device holds the runtime of one length (placement "single").

An instance is a device with the runtime that it holds. The policies, by name (`Config.dispatch`):

- "completion" (default): the instance, of all whose runtime is long enough, on which the request would end first.
- "published": Arlo's Algorithm 1. It looks at the runtimes that are long enough, in ascending order, at most 6. The
  congestion of a runtime's least loaded instance is outstanding / capacity: below lambda (0.85) that instance is taken,
  otherwise lambda is multiplied by 0.9. If none is taken, it is the least loaded instance of the first runtime.

`Instances` has a heap per runtime and skips outdated entries at the top: O(runtimes + log instances) per request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

DISPATCHES = ("completion", "published")
LAMBDA, ALPHA, MAX_SEEN = 0.85, 0.9, 6  # Arlo, Algorithm 1

SAME = 1e-9  # seconds: a smaller change is rounding
NO_RUNTIME = -1
"""The runtime of a worker to which nothing is dispatched."""


class Instances:
    """Workers in heaps by the runtime that they hold, least loaded first; among equals the lowest number.

    A worker's load is the time at which it becomes free (`by_time`), or its number of requests.
    """

    def __init__(self, workers: int, runtimes: int, by_time: bool) -> None:
        self.runtime = [NO_RUNTIME] * workers
        self.free_at = [0.0] * workers
        self.outstanding = [0] * workers
        self.members: list[set[int]] = [set() for _ in range(runtimes)]
        self._by_time = by_time
        self._load: list[float] | list[int] = self.free_at if by_time else self.outstanding
        self._heaps: list[list[tuple[float, int]]] = [[] for _ in range(runtimes)]

    def join(self, worker: int, runtime: int) -> None:
        """Give the worker this runtime; requests may be dispatched to it from now on."""
        self.leave(worker)
        self.runtime[worker] = runtime
        self.members[runtime].add(worker)
        heappush(self._heaps[runtime], (self._load[worker], worker))

    def leave(self, worker: int) -> None:
        """Dispatch no more requests to the worker."""
        if self.runtime[worker] != NO_RUNTIME:
            self.members[self.runtime[worker]].discard(worker)
            self.runtime[worker] = NO_RUNTIME

    def change(self, worker: int, free_at: float, more: int) -> None:
        """Update the worker's load: it becomes free at `free_at` and has `more` requests more."""
        same = self._by_time and abs(free_at - self.free_at[worker]) < SAME
        self.outstanding[worker] += more
        if same:
            return
        self.free_at[worker] = free_at
        runtime = self.runtime[worker]
        if runtime == NO_RUNTIME:
            return
        heap = self._heaps[runtime]
        heappush(heap, (self._load[worker], worker))
        if len(heap) > 4 * len(self.members[runtime]) + 16:  # mostly outdated entries
            heap[:] = [(self._load[member], member) for member in self.members[runtime]]
            heapify(heap)

    def least(self, runtime: int) -> int:
        """Return the runtime's least loaded instance, or -1 if it has none."""
        heap, load, holds = self._heaps[runtime], self._load, self.runtime
        while heap:
            key, worker = heap[0]
            if holds[worker] == runtime and load[worker] == key:
                return worker
            heappop(heap)
        return -1

    def check(self) -> None:
        """Assert that heaps and members agree, and that no load is negative."""
        for runtime, members in enumerate(self.members):
            assert all(self.runtime[worker] == runtime for worker in members), "membership"
            expected = min(((self._load[worker], worker) for worker in members), default=(0, -1))[1]
            assert self.least(runtime) == expected, "the least loaded instance"
        assert sum(map(len, self.members)) == sum(held != NO_RUNTIME for held in self.runtime), "membership"
        assert all(count >= 0 for count in self.outstanding), "outstanding"


Choose = Callable[[int, int, float], int]
"""From (first runtime that is long enough, one beyond the last, now) to a worker, or -1 if no instance will do."""


def policy(
    name: str, instances: Instances, seconds: Sequence[float], capacity: Sequence[float], end: Sequence[int]
) -> Choose:
    """Return the function that chooses among these instances by the policy `name`.

    By runtime: `seconds` of one request, `capacity` in requests within the SLO, `end` of its stream (one beyond the
    last runtime).
    """
    fastest = [own <= min(seconds[at : end[at]]) for at, own in enumerate(seconds)]  # of those that are long enough
    least, outstanding, free_at = instances.least, instances.outstanding, instances.free_at

    def completion(first: int, end: int, now: float) -> int:
        worker = least(first)
        if worker >= 0 and free_at[worker] <= now and fastest[first]:
            return worker
        best, ends = -1, float("inf")
        for runtime in range(first, end):
            if seconds[runtime] + now >= ends:
                continue
            worker = least(runtime)
            if worker >= 0 and (at := max(free_at[worker], now) + seconds[runtime]) < ends:
                best, ends = worker, at
        return best

    def published(first: int, end: int, _now: float) -> int:
        fallback, threshold, seen = -1, LAMBDA, 0
        for runtime in range(first, end):
            worker = least(runtime)
            if worker < 0:
                continue
            fallback = worker if fallback < 0 else fallback
            if outstanding[worker] / capacity[runtime] < threshold:
                return worker
            threshold *= ALPHA
            seen += 1
            if seen == MAX_SEEN:
                break
        return fallback

    return {"completion": completion, "published": published}[name]
