"""Which instance serves a request, where each device holds one length's runtime (placement "single").

Policies, by name (`Config.dispatch`):

- "completion" (default): least completion time. The instance, of all with sufficient length, on which the request would end
  first. Queues are known work, so that is known.
- "published": Arlo's Algorithm 1. Of the runtimes with sufficient length, in ascending order, at most 6: the least loaded
  instance's congestion is outstanding / capacity; below lambda (0.85) it is taken, else lambda *= 0.9; if none, the least
  loaded of the first.
- "intra": ILB, the least loaded instance of the first runtime (shortest sufficient length) alone.
- "inter": IG, the least congested instance of all runtimes with sufficient length.
- "packing": INFaaS, of the first runtime that has one, the most loaded instance with room for one request more within its
  capacity; if none, the least loaded of the first. It searches all instances of a runtime, the others only heaps.

`Instances` holds a heap a runtime, with leftovers that are passed over when they come to the top: O(candidates + log
instances) a request. Knows neither requests nor time but as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush

DISPATCHES = ("completion", "published", "intra", "inter", "packing")
LAMBDA, ALPHA, MOST = 0.85, 0.9, 6  # Arlo, Algorithm 1

SAME = 1e-9  # seconds: a rounding, not news
GONE = -1
"""The runtime of a worker that none is dispatched to."""


class Instances:
    """Workers in heaps by the runtime that they hold, least loaded first, of equals the one of the least number.

    A worker's load is when it will be free (seconds; `by_time`), or how many requests it has.
    """

    def __init__(self, workers: int, runtimes: int, by_time: bool) -> None:
        self.runtime = [GONE] * workers
        self.free_at = [0.0] * workers
        self.outstanding = [0] * workers
        self.members: list[set[int]] = [set() for _ in range(runtimes)]
        self._by_time = by_time
        self._load: list[float] | list[int] = self.free_at if by_time else self.outstanding
        self._heaps: list[list[tuple[float, int]]] = [[] for _ in range(runtimes)]

    def join(self, worker: int, runtime: int) -> None:
        """It holds this runtime from now on, and requests may be dispatched to it."""
        self.leave(worker)
        self.runtime[worker] = runtime
        self.members[runtime].add(worker)
        heappush(self._heaps[runtime], (self._load[worker], worker))

    def leave(self, worker: int) -> None:
        """No request is dispatched to it any more."""
        if self.runtime[worker] != GONE:
            self.members[self.runtime[worker]].discard(worker)
            self.runtime[worker] = GONE

    def change(self, worker: int, free_at: float, more: int) -> None:
        """Its load is another one: it has `more` requests more."""
        same = self._by_time and abs(free_at - self.free_at[worker]) < SAME
        self.outstanding[worker] += more
        if same:
            return
        self.free_at[worker] = free_at
        runtime = self.runtime[worker]
        if runtime == GONE:
            return
        heap = self._heaps[runtime]
        heappush(heap, (self._load[worker], worker))
        if len(heap) > 4 * len(self.members[runtime]) + 16:  # mostly leftovers
            heap[:] = [(self._load[one], one) for one in self.members[runtime]]
            heapify(heap)

    def least(self, runtime: int) -> int:
        """Its least loaded instance; -1: it has none."""
        heap, load, holds = self._heaps[runtime], self._load, self.runtime
        while heap:
            key, worker = heap[0]
            if holds[worker] == runtime and load[worker] == key:
                return worker
            heappop(heap)
        return -1

    def check(self) -> None:
        """Every member of a runtime is found, and nobody else; loads are not negative."""
        for runtime, members in enumerate(self.members):
            assert all(self.runtime[worker] == runtime for worker in members), "membership"
            expected = min(((self._load[worker], worker) for worker in members), default=(0, -1))[1]
            assert self.least(runtime) == expected, "the least loaded instance"
        assert sum(map(len, self.members)) == sum(one != GONE for one in self.runtime), "membership"
        assert all(count >= 0 for count in self.outstanding), "outstanding"


Choose = Callable[[int, int, float], int]
"""(first runtime of sufficient length, one beyond the last, now) -> worker, or -1 where no instance would do."""


def policy(
    name: str, instances: Instances, seconds: Sequence[float], capacity: Sequence[float], end: Sequence[int]
) -> Choose:
    """The policy's decision over these instances.

    By runtime: `seconds` of one request, `capacity` within the SLO, `end` of its stream (one beyond the last runtime).
    """
    fastest = [one <= min(seconds[at : end[at]]) for at, one in enumerate(seconds)]  # of those of sufficient length
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
            if seen == MOST:
                break
        return fallback

    def intra(first: int, end: int, _now: float) -> int:
        return next((worker for runtime in range(first, end) if (worker := least(runtime)) >= 0), -1)

    def inter(first: int, end: int, _now: float) -> int:
        found = [(outstanding[w] / capacity[r], r, w) for r in range(first, end) if (w := least(r)) >= 0]
        return min(found, default=(0.0, 0, -1))[2]

    def packing(first: int, end: int, now: float) -> int:
        for runtime in range(first, end):
            room = [w for w in instances.members[runtime] if outstanding[w] + 1 <= capacity[runtime]]
            if room:
                return max(room, key=lambda worker: (outstanding[worker], -worker))
        return intra(first, end, now)

    return {"completion": completion, "published": published, "intra": intra, "inter": inter, "packing": packing}[name]
