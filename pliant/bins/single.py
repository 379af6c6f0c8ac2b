"""Each device holds one length's runtime, as published: a queue a device, dispatched to at arrival, re-planned each period.

A device that is to hold another runtime gets no more requests, serves those that it has, and loads it (a `Launch` that
occupies it). Only a share of the devices swaps at once. Knows who holds what; which instance a request goes to is
dispatch.py's, how many devices a runtime gets plan.py's business.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

from pliant.bins.dispatch import GONE, Instances, policy
from pliant.bins.knowledge import Config, Knowledge, Stream
from pliant.bins.planning.plan import Window, plan, start_plan, swaps
from pliant.bins.work import Requests, Work, batch_size, until
from pliant.devices import Devices
from pliant.protocol import Request


class SinglePool:
    """`devices` is read for what was learnt about the profile."""

    def __init__(self, knowledge: Knowledge, config: Config, devices: Devices[Requests]) -> None:
        self._knowledge, self._config, self._devices = knowledge, config, devices
        self._runtimes = knowledge.runtimes
        self._instances = Instances(config.workers, len(self._runtimes), config.dispatch == "completion")
        self._seconds = [runtime.alone for runtime in self._runtimes]
        slos = [knowledge.streams[runtime.stream].slo for runtime in self._runtimes]
        capacity = [max(slo // one, 1.0) for slo, one in zip(slos, self._seconds, strict=True)]
        self._first = {stream.name: _first_runtimes(stream) for stream in knowledge.streams}
        self._end = {stream.name: stream.first + len(stream.runtimes) for stream in knowledge.streams}
        ends = [self._end[knowledge.streams[runtime.stream].name] for runtime in self._runtimes]
        self._choose = policy(config.dispatch, self._instances, self._seconds, capacity, ends)
        self._alone = [
            None if one.table else one.cost(one.length, 1) for one in self._runtimes
        ]  # static: whatever length
        self._queues: list[deque[Request]] = [deque() for _ in range(config.workers)]
        self._homeless: dict[int, Request] = {}  # no instance would do at present
        self._latest: list[tuple[float, int, Request]] = []  # by when each of them must have started
        self._queued = 0
        self.late = 0  # none is put after others: who waits for long is answered in turn
        self._times: list[float] = []  # of arrivals since the last plan, and ...
        self._firsts: list[int] = []  # ... the shortest runtime of sufficient length for each
        self._next_plan = 0.0
        self.held = list(config.deployed or start_plan(knowledge, config.workers))
        self._turn: deque[tuple[int, int]] = deque()  # (worker, runtime) that are to be loaded
        self._loading: dict[int, int] = {}  # those that get no requests meanwhile
        self._up = set(range(config.workers))
        self._retired: set[int] = set()
        for worker, runtime in enumerate(self.held):
            self._instances.join(worker, runtime)

    @property
    def waiting(self) -> int:
        return self._queued + len(self._homeless)

    def add(self, request: Request, now: float) -> int | None:
        """Dispatch it. Gives the worker whose queue it joined."""
        first = self._first[request.task][request.length]
        if not self._times:
            self._next_plan = (now // self._config.period + 1) * self._config.period
        self._times.append(now)
        self._firsts.append(first)
        return self._dispatch(request, first, now)

    def take(self, worker: int, now: float) -> Work | None:
        """What the worker does next: the first of its queue, or load what it is to hold."""
        queue = self._queues[worker]
        if not queue:
            if worker not in self._loading:
                return None
            runtime = self._runtimes[self._loading[worker]]
            return Work((), runtime.settings[0], self._knowledge.load_seconds, "load")
        runtime = self._runtimes[self.held[worker]]
        if len(queue) == 1 or runtime.batches[-1] == 1:
            self._queued -= 1
            request = queue.popleft()
            return Work((request,), *self._cost(worker, request))
        some = [queue[at] for at in range(min(len(queue), runtime.batches[-1]))]
        size = batch_size(some, runtime.batches, runtime.cost, self._until, now, len(queue))
        requests = tuple(queue.popleft() for _ in range(size))
        self._queued -= size
        return Work(requests, *runtime.cost(max(one.length for one in requests), size))

    def ended(self, worker: int, kind: str, work: Requests, now: float) -> list[int]:
        """A launch of the worker ended. Gives workers to look at."""
        match kind:
            case "run":
                self._instances.change(worker, now + self._rest(worker), -len(work))
                return [worker]
            case "load":
                return self._loaded(worker, now)
        return self._restarted(worker)

    def lost(self, worker: int, now: float) -> list[int]:
        """The worker failed: what waited for it goes elsewhere. (What ran is the scheduler's business.)

        It may be lost for good, so nobody waits for its turn: what it was to load it will load if it comes back.
        """
        self._up.discard(worker)
        self.held[worker] = self._loading.pop(worker, dict(self._turn).get(worker, self.held[worker]))
        self._turn = deque(turn for turn in self._turn if turn[0] != worker)
        self._instances.leave(worker)
        self._instances.outstanding[worker] = 0
        stranded, self._queues[worker] = self._queues[worker], deque()
        self._queued -= len(stranded)
        taken = [to for request in stranded if (to := self.again(request, now)) is not None]
        return [*taken, *self._begin_loads()]

    def again(self, request: Request, now: float) -> int | None:
        """Dispatch a request once more that is known already."""
        return self._dispatch(request, self._first[request.task][request.length], now)

    def expire(self, now: float) -> list[Request]:
        """Those whom no instance has taken and that would be late by now."""
        gone: list[Request] = []
        while self._latest and self._latest[0][0] <= now:
            _, id, request = heappop(self._latest)
            if id in self._homeless:
                del self._homeless[id]
                gone.append(request)
        return gone

    def wake_at(self) -> float | None:
        """Only while there is something to plan for: silence needs no plan."""
        times = [self._latest[0][0]] if self._latest else []
        if self._times:
            times.append(self._next_plan)
        return min(times, default=None)

    def woken(self, now: float) -> list[int]:
        """Plan again where it is time to. Gives workers to look at."""
        if now < self._next_plan or not self._times:
            return []
        window, config = Window(self._config.period, self._times, self._firsts), self._config
        self._times, self._firsts = [], []
        if len(self._up) < len(self._knowledge.streams):
            return []
        held = [self._loading.get(w, runtime) if w in self._up else GONE for w, runtime in enumerate(self.held)]
        counts = plan(self._knowledge, window, len(self._up), config.plan, config.dispatch, held)
        for worker, runtime in self._loading.items():  # which is carried to its end
            held[worker], counts[runtime] = GONE, max(counts[runtime] - 1, 0)
        self._turn = deque(swaps(held, counts, self._instances.free_at))
        return self._begin_loads()

    def enlist(self, worker: int) -> list[int]:
        """A spare worker is to serve: it loads the longest runtime (as published). Gives workers to look at."""
        self._retired.discard(worker)
        self._up.add(worker)
        self._loading[worker] = len(self._runtimes) - 1
        return [worker]

    def retire(self, active: Sequence[int]) -> int | None:
        """The least busy of these workers gets no more requests. None where each is a stream's last one for long ones."""
        longest = [self._end[stream.name] - 1 for stream in self._knowledge.streams]
        alone = {
            self.held[w] for w in active if self.held[w] in longest and len(self._instances.members[self.held[w]]) == 1
        }
        able = [w for w in active if w in self._up and w not in self._loading and self.held[w] not in alone]
        if not able or self._turn:
            return None
        worker = min(able, key=lambda w: (self._instances.free_at[w], w))
        self._instances.leave(worker)
        self._up.discard(worker)
        self._retired.add(worker)
        return worker

    def check(self) -> None:
        """Each request waits in one place, and instances are found where they are."""
        self._instances.check()
        places = [request.id for queue in self._queues for request in queue] + list(self._homeless)
        assert len(set(places)) == len(places) == self.waiting, "a request is in two places"
        assert all(self._instances.runtime[worker] == GONE for worker in self._loading), "dispatched to while it loads"

    def _dispatch(self, request: Request, first: int, now: float) -> int | None:
        worker = self._choose(first, self._end[request.task], now)
        if worker < 0:
            self._homeless[request.id] = request
            heappush(self._latest, (self._until(request), request.id, request))
            return None
        self._queues[worker].append(request)
        self._queued += 1
        seconds = self._devices.seconds(self._cost(worker, request)[1])
        free_at = self._instances.free_at[worker]
        self._instances.change(worker, (free_at if free_at > now else now) + seconds, 1)
        return worker

    def _cost(self, worker: int, request: Request) -> tuple[int, float]:
        """Setting and seconds of the request, alone, on what the worker holds."""
        held = self.held[worker]
        return self._alone[held] or self._runtimes[held].cost(request.length, 1)

    def _rest(self, worker: int) -> float:
        """Seconds of all that waits for the worker; asked at every end, without a look at each where all take the same."""
        alone = self._alone[self.held[worker]]
        if alone is not None:
            return len(self._queues[worker]) * self._devices.seconds(alone[1])
        return sum(self._devices.seconds(self._cost(worker, request)[1]) for request in self._queues[worker])

    def _restarted(self, worker: int) -> list[int]:
        """It holds nothing now; one that is retired need not."""
        if worker in self._retired:
            return []
        self._up.add(worker)
        self._loading.setdefault(worker, self.held[worker])
        return [worker]

    def _loaded(self, worker: int, now: float) -> list[int]:
        """It may serve again, and the next one may load."""
        self.held[worker] = self._loading.pop(worker)
        self._instances.free_at[worker] = now
        self._instances.join(worker, self.held[worker])
        homeless, self._homeless, self._latest = list(self._homeless.values()), {}, []
        taken = [to for request in homeless if (to := self.again(request, now)) is not None]
        return [worker, *taken, *self._begin_loads()]

    def _begin_loads(self) -> list[int]:
        """Those whose turn it is get no more requests, and load when they have served what they have."""
        begun: list[int] = []
        most = max(1, int(self._config.swaps * self._config.workers))
        while self._turn and len(self._loading) < most:
            worker, runtime = self._turn.popleft()
            self._instances.leave(worker)
            self._loading[worker] = runtime
            begun.append(worker)
        return begun

    def _until(self, request: Request) -> float:
        return until(request, self._config.margin)


def _first_runtimes(stream: Stream) -> list[int]:
    """[max length + 1] the shortest runtime with sufficient length, by length."""
    lengths = [runtime.length for runtime in stream.runtimes]
    return [stream.first + bisect_left(lengths, length) for length in range(stream.max_length + 1)]
