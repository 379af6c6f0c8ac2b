"""Placement "single", as published: each device holds one length's runtime and has a queue of its own.

A request joins a queue at arrival. Each period a plan says which devices are to hold which runtime. One that is to hold
another gets no more requests, serves those that it has, and loads the runtime (a `Launch` that occupies it). Only a
share of the devices swaps at once. dispatch.py chooses the instance for a request, planning/plan.py how many devices a
runtime gets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import islice

from pliant.bins.dispatch import NO_RUNTIME, Instances, policy
from pliant.bins.knowledge import Config, Knowledge, Stream, Work, batch_size, latest_end
from pliant.bins.planning.plan import Window, plan, start_plan, swaps
from pliant.devices import Devices, Retries
from pliant.fairness import Fairness
from pliant.protocol import Request


class SinglePool:
    """The queues of all devices.

    `devices` is read for what was learnt about the profile, `fairness` for whose turn it is, `retries` for who runs apart.
    """

    def __init__(
        self, knowledge: Knowledge, config: Config, devices: Devices[Request], fairness: Fairness, retries: Retries
    ) -> None:
        self._knowledge, self._config, self._devices = knowledge, config, devices
        self._fairness, self._retries = fairness, retries
        self._runtimes = knowledge.runtimes
        self._instances = Instances(config.workers, len(self._runtimes), config.dispatch == "completion")
        self._seconds = [runtime.alone for runtime in self._runtimes]
        slos = [knowledge.streams[runtime.stream].slo for runtime in self._runtimes]
        capacity = [max(slo // seconds, 1.0) for slo, seconds in zip(slos, self._seconds, strict=True)]
        self._first = {stream.name: _first_runtimes(stream) for stream in knowledge.streams}
        self._end = {stream.name: stream.first + len(stream.runtimes) for stream in knowledge.streams}
        ends = [self._end[knowledge.streams[runtime.stream].name] for runtime in self._runtimes]
        self._choose = policy(config.dispatch, self._instances, self._seconds, capacity, ends)
        # Of one text, whatever its length; None for a dynamic runtime.
        self._alone = [None if runtime.table else runtime.cost(runtime.length, 1) for runtime in self._runtimes]
        self._queues: list[deque[Request]] = [deque() for _ in range(config.workers)]
        self._queue_of: dict[int, int] = {}  # request -> the worker in whose queue it is
        self._unassigned: dict[int, Request] = {}  # requests that no instance can take at present
        self._latest: list[tuple[float, int, Request]] = []  # a heap of these by latest end; some entries are outdated
        self.late = 0  # no request is put behind others: a late one is answered in its turn
        self._times: list[float] = []  # arrivals since the last plan, in seconds
        self._firsts: list[int] = []  # the shortest runtime that is long enough for each
        self._next_plan: float | None = None  # when, if anybody wants one
        self._last_plan = 0.0
        self.held = list(config.deployed or start_plan(knowledge, config.workers))
        self._swaps = OrderedDict[int, int]()  # worker -> the runtime that it is still to load
        self._loading: dict[int, int] = {}  # worker -> the runtime that it loads next or now; it gets no requests
        self._up = set(range(config.workers))
        self._retired: set[int] = set()
        for worker, runtime in enumerate(self.held):
            self._instances.join(worker, runtime)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._queue_of) + len(self._unassigned)

    @property
    def idle(self) -> bool:
        return any(worker in self._up for worker in self._devices.free)

    def add(self, request: Request, now: float) -> int | None:
        """Dispatch a new request, and return the worker whose queue it joined."""
        first = self._first[request.task][request.length]
        self._await_plan(now)
        self._times.append(now)
        self._firsts.append(first)
        return self._dispatch(request, first, now)

    def take(self, worker: int, now: float) -> Work | None:
        """Return what the worker does next: the first of its queue, or the load of its next runtime."""
        queue = self._queues[worker]
        if not queue:
            if worker not in self._loading:
                return None
            runtime = self._runtimes[self._loading[worker]]
            return Work((), runtime.settings[0], self._knowledge.load_seconds, "load")
        runtime = self._runtimes[self.held[worker]]
        if self._fairness.several and len(queue) > 1:
            self._bring_forward(queue, runtime.batches[-1])
        if len(queue) == 1 or runtime.batches[-1] == 1:
            request = queue.popleft()
            del self._queue_of[request.id]
            return Work((request,), *self._cost(worker, request))
        first = self._apart(queue, [queue[at] for at in range(min(len(queue), runtime.batches[-1]))])
        slowdown = self._devices.slowdown
        size = batch_size(first, runtime.batches, runtime.cost, self._latest_end, now, len(queue), slowdown)
        requests = tuple(queue.popleft() for _ in range(size))
        for request in requests:
            del self._queue_of[request.id]
        return Work(requests, *runtime.cost(max(request.length for request in requests), size))

    def ended(self, worker: int, kind: str, count: int, now: float) -> list[int]:
        """Note that a launch of the worker ended, and return the workers that may take something."""
        match kind:
            case "run":
                self._instances.change(worker, now + self._rest(worker), -count)
                return [worker]
            case "load":
                return self._loaded(worker, now)
        return self._restarted(worker)

    def lost(self, worker: int, now: float) -> list[int]:
        """Dispatch the failed worker's queue to others, and return the workers that may take something.

        It may be lost for good, so no swap waits for it. If it comes back it loads the runtime that it was to load.
        """
        self._up.discard(worker)
        self.held[worker] = self._loading.pop(worker, self._swaps.get(worker, self.held[worker]))
        self._swaps.pop(worker, None)
        self._instances.leave(worker)
        self._instances.outstanding[worker] = 0
        stranded, self._queues[worker] = self._queues[worker], deque()
        for request in stranded:
            del self._queue_of[request.id]
        joined = [other for request in stranded if (other := self.retry(request, now)) is not None]
        return [*joined, *self._begin_loads()]

    def retry(self, request: Request, now: float) -> int | None:
        """Dispatch a request once more, and return the worker whose queue it joined."""
        return self._dispatch(request, self._first[request.task][request.length], now)

    def cancel(self, request: int) -> None:
        """Remove a waiting request from the queue that it is in."""
        if self._unassigned.pop(request, None) is not None:
            return
        worker = self._queue_of.pop(request)
        at = next(at for at, other in enumerate(self._queues[worker]) if other.id == request)
        seconds = self._devices.seconds(self._cost(worker, self._queues[worker][at])[1])
        del self._queues[worker][at]
        self._instances.change(worker, self._instances.free_at[worker] - seconds, -1)

    def expire(self, now: float) -> list[Request]:
        """Return the requests that no instance has taken and that would be late by now."""
        late: list[Request] = []
        while self._latest and self._latest[0][0] <= now:
            _, number, request = heappop(self._latest)
            if number in self._unassigned:
                del self._unassigned[number]
                late.append(request)
        return late

    def wake_at(self) -> float | None:
        """Return when to expire or to plan next; a plan is for what came, or for what no device can take."""
        times = [self._latest[0][0]] if self._latest else []
        if self._next_plan is not None:
            times.append(self._next_plan)
        return min(times, default=None)

    def woken(self, now: float) -> list[int]:
        """Plan again if it is time to, and return the workers that may take something."""
        if self._next_plan is None or now < self._next_plan:
            return []
        window, config = self._window(now), self._config
        self._times, self._firsts, self._last_plan, self._next_plan = [], [], now, None
        if self._unassigned:
            self._await_plan(now)
        if not window.times or len(self._up) < len(self._knowledge.streams):
            return []
        held = [self._loading.get(w, runtime) if w in self._up else NO_RUNTIME for w, runtime in enumerate(self.held)]
        counts = plan(self._knowledge, window, len(self._up), config.plan, config.dispatch, held)
        for worker, runtime in self._loading.items():  # A load that has begun is finished.
            held[worker], counts[runtime] = NO_RUNTIME, max(counts[runtime] - 1, 0)
        self._swaps = OrderedDict(swaps(held, counts, self._instances.free_at))
        return self._begin_loads()

    def enlist(self, worker: int) -> list[int]:
        """Let a spare worker load the longest runtime, as published, and return it."""
        self._retired.discard(worker)
        self._up.add(worker)
        self._loading[worker] = len(self._runtimes) - 1
        return [worker]

    def retire(self, active: Sequence[int]) -> int | None:
        """Give no more requests to the least busy of these workers, and return it.

        Returns None where each is the last one of its stream for long texts, or while swaps are under way.
        """
        longest = [self._end[stream.name] - 1 for stream in self._knowledge.streams]
        needed = {
            self.held[w] for w in active if self.held[w] in longest and len(self._instances.members[self.held[w]]) == 1
        }
        candidates = [w for w in active if w in self._up and w not in self._loading and self.held[w] not in needed]
        if not candidates or self._swaps:
            return None
        chosen = min(candidates, key=lambda w: (self._instances.free_at[w], w))
        self._instances.leave(chosen)
        self._up.discard(chosen)
        self._retired.add(chosen)
        return chosen

    def _await_plan(self, now: float) -> None:
        """Let the next plan be made at the end of this period, unless one is awaited already."""
        if self._next_plan is None:
            end = (now // self._config.period + 1) * self._config.period
            self._next_plan = end if end > now else end + self._config.period  # both are rounded

    def _window(self, now: float) -> Window:
        """Return what to plan for: what came since the last plan, and what came before it and still has no device."""
        waiting = [request for request in self._unassigned.values() if request.arrival < self._last_plan]
        firsts = [self._first[request.task][request.length] for request in waiting]
        begin = self._times[0] if self._times else now
        return Window(self._config.period, [begin] * len(waiting) + self._times, firsts + self._firsts)

    def _bring_forward(self, queue: deque[Request], most: int) -> None:
        """Put the first requests of the tenants whose turn it is before all others of this queue, `most` of them."""
        turn = self._fairness.turn({request.tenant for request in queue})
        if turn is not None:
            places = list(islice((at for at, request in enumerate(queue) if request.tenant in turn), most))
            first = [queue[at] for at in places]
            for at in reversed(places):
                del queue[at]
            queue.extendleft(reversed(first))

    def ids(self) -> list[int]:
        """Return the ids of all waiting requests."""
        return [request.id for queue in self._queues for request in queue] + list(self._unassigned)

    def check(self) -> None:
        """Assert that each request waits in one place, and that a loading worker is no instance."""
        self._instances.check()
        places = self.ids()
        assert len(set(places)) == len(places) == self.waiting, "a request is in two places"
        queued = {request.id: worker for worker, queue in enumerate(self._queues) for request in queue}
        assert queued == self._queue_of, "the queue of a request"
        assert all(self._instances.runtime[w] == NO_RUNTIME for w in self._loading), "dispatched to while it loads"

    def _dispatch(self, request: Request, first: int, now: float) -> int | None:
        """Put the request into the queue of an instance, and return its worker; None where no instance will do."""
        worker = self._choose(first, self._end[request.task], now)
        if worker < 0:
            self._await_plan(now)
            self._unassigned[request.id] = request
            heappush(self._latest, (self._latest_end(request), request.id, request))
            return None
        self._queues[worker].append(request)
        self._queue_of[request.id] = worker
        seconds = self._devices.seconds(self._cost(worker, request)[1])
        free_at = self._instances.free_at[worker]
        self._instances.change(worker, (free_at if free_at > now else now) + seconds, 1)
        return worker

    def _apart(self, queue: deque[Request], first: list[Request]) -> list[Request]:
        """Return those of the first requests that may run together, and put these at the queue's head."""
        together = set(self._retries.together([request.id for request in first]))
        if len(together) == len(first):
            return first
        chosen = [request for request in first if request.id in together]
        for _ in first:
            queue.popleft()
        queue.extendleft(reversed([*chosen, *(request for request in first if request.id not in together)]))
        return chosen

    def _cost(self, worker: int, request: Request) -> tuple[int, float]:
        """Return setting and seconds of the request, alone, on the runtime that the worker holds."""
        held = self.held[worker]
        return self._alone[held] or self._runtimes[held].cost(request.length, 1)

    def _rest(self, worker: int) -> float:
        """Return the seconds of all that waits for the worker.

        This is computed at the end of every launch, so a static runtime, where all requests take the same, does not
        look at each.
        """
        alone = self._alone[self.held[worker]]
        if alone is not None:
            return len(self._queues[worker]) * self._devices.seconds(alone[1])
        return sum(self._devices.seconds(self._cost(worker, request)[1]) for request in self._queues[worker])

    def _restarted(self, worker: int) -> list[int]:
        """Note that the worker is up and holds nothing; unless it is retired, it loads its runtime."""
        if worker in self._retired:
            return []
        self._up.add(worker)
        self._loading.setdefault(worker, self.held[worker])
        return [worker]

    def _loaded(self, worker: int, now: float) -> list[int]:
        """Let the worker serve again, and the next one load."""
        self.held[worker] = self._loading.pop(worker)
        self._instances.free_at[worker] = now
        self._instances.join(worker, self.held[worker])
        unassigned, self._unassigned, self._latest = list(self._unassigned.values()), {}, []
        joined = [other for request in unassigned if (other := self.retry(request, now)) is not None]
        return [worker, *joined, *self._begin_loads()]

    def _begin_loads(self) -> list[int]:
        """Begin as many swaps as may run at once: these workers serve what they have, then load."""
        begun: list[int] = []
        max_loads = max(1, int(self._config.swaps * self._config.workers))
        while self._swaps and len(self._loading) < max_loads:
            worker, runtime = self._swaps.popitem(last=False)
            self._instances.leave(worker)
            self._loading[worker] = runtime
            begun.append(worker)
        return begun

    def _latest_end(self, request: Request) -> float:
        return latest_end(request, self._config.margin)


def _first_runtimes(stream: Stream) -> list[int]:
    """Return [max length + 1] the shortest runtime that is long enough, by length."""
    lengths = [runtime.length for runtime in stream.runtimes]
    return [stream.first + bisect_left(lengths, length) for length in range(stream.max_length + 1)]
