"""Placement "shared": every device holds every runtime, and one queue feeds them all.

Compiled runtimes of one encoder share its weights, so a device has room for all of them, and each text runs in the
fastest runtime that takes it. What is left to decide is the order: by arrival + patience * seconds of the request's own
work. A request can thus be overtaken by shorter ones, but only for a limited time. (Without patience this is first
come, first served; with endless patience the shortest comes first, and under overload the longest starve.) A request
that is not expected to be in time goes behind all others, so that a device with nothing else to do still tries; it is
dropped when no launch of late was fast enough for it. Waiting requests are grouped by length, so that a launch can take
several of similar length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush

from pliant.bins.knowledge import Config, Knowledge, Stream, Work, batch_size, latest_end
from pliant.devices import Devices, Retries
from pliant.fairness import Fairness, Turn
from pliant.protocol import Request

LATE = 1e12  # seconds added to the place of a request that cannot be in time: behind all others

Entry = tuple[float, int, Request]
"""An element of a heap: place in the order, id, request."""


class SharedPool:
    """The queue of all devices.

    `devices` is read for what was learnt about the profile, `fairness` for whose turn it is, `retries` for who runs apart.
    """

    def __init__(
        self, knowledge: Knowledge, config: Config, devices: Devices[Request], fairness: Fairness, retries: Retries
    ) -> None:
        self._config, self._devices, self._fairness, self._retries = config, devices, fairness, retries
        self._streams = {stream.name: stream for stream in knowledge.streams}
        self._heaps: dict[str, dict[str, list[list[Entry]]]] = {}  # by tenant and stream, one a class of length
        self._every: list[list[Entry]] = []  # all of these
        self._classes = {stream.name: stream.classes for stream in knowledge.streams}
        self._patience = {stream.name: _patience(stream, knowledge, config) for stream in knowledge.streams}
        self._waiting: dict[int, float] = {}  # id -> place in the order; a heap's entry with another place is outdated
        self._starts: list[Entry] = []  # a heap by the time at which each must start; some entries are outdated
        self._must: dict[int, float] = {}  # id -> the time of its entry in `_starts` that is not outdated
        self._active = set(range(config.workers))
        self._idle = [(since, worker) for worker, since in devices.free.items()]  # a heap; some entries are outdated
        self.late = 0  # waiting requests that were put behind all others

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return self._first_free() is not None

    def add(self, request: Request, now: float) -> int | None:
        """Take a request into the queue, and return a free worker if there is one."""
        return self.retry(request, now)

    def retry(self, request: Request, _now: float) -> int | None:
        seconds = self._alone(request)
        self._push(request, request.arrival + self._patience[request.task] * seconds)
        self._watch(request, self._start(request))
        return self._first_free()

    def ended(self, worker: int, _kind: str, _count: int, _now: float) -> list[int]:
        """Return the worker whose launch ended: it may take something."""
        self._note_free(worker)
        return [worker]

    def lost(self, _worker: int, _now: float) -> Iterator[int]:
        """Yield free workers as long as requests wait: those of the failed worker may be work for each of them.

        A worker that is yielded takes something before the next one is asked for.
        """
        while self._waiting and (worker := self._first_free()) is not None:
            yield worker

    def woken(self, _now: float) -> list[int]:
        """Return no workers: nothing is planned."""
        return []

    def enlist(self, worker: int) -> list[int]:
        """Let a spare worker serve again, and return it."""
        self._active.add(worker)
        self._note_free(worker)
        return [worker]

    def retire(self, active: Sequence[int]) -> int | None:
        """Give no more requests to the last of these workers, and return it."""
        worker = max(active)
        self._active.discard(worker)
        return worker

    def take(self, worker: int, now: float) -> Work | None:
        """Return the launch of the first request in the order, and of others that go with it."""
        if worker not in self._active:
            return None
        turn = self._fairness.turn() if self._fairness.several else None
        heap = self._first_heap(turn)
        if heap is None and turn is not None:
            turn, heap = None, self._first_heap(None)
        if heap is None:
            return None
        stream = self._streams[heap[0][2].task]
        chosen = self._apart(self._candidates(heap, stream, turn))
        requests = [request for _, _, request in chosen]
        waiting, slowdown = self.waiting / len(self._active), self._devices.slowdown
        size = batch_size(requests, stream.batches, stream.cost, self._latest_end, now, waiting, slowdown)
        for entry in chosen[size:]:
            heappush(self._heap_of(entry[2]), entry)
        if turn is not None and not any(request.id in self._retries for request in requests):
            requests = self._fill(requests[:size], stream, turn)
            size = len(requests)
        for request in requests[:size]:
            self._must.pop(request.id, None)
            self.late -= self._waiting.pop(request.id) >= LATE
        return Work(tuple(requests[:size]), *stream.cost(max(request.length for request in requests[:size]), size))

    def cancel(self, request: int) -> None:
        """Remove a waiting request; its entries in the heaps are outdated from now on."""
        self._must.pop(request, None)
        self.late -= self._waiting.pop(request) >= LATE

    def expire(self, now: float) -> list[Request]:
        """Put the requests behind all others that are not expected to be in time, and return the hopeless ones to drop."""
        hopeless: list[Request] = []
        while self._starts and self._starts[0][0] <= now:
            if self._is_outdated(entry := heappop(self._starts)):
                continue
            _, number, request = entry
            is_late = self._waiting[number] >= LATE
            at = self._hopeless_at(request) if is_late else self._start(request)
            del self._must[number]
            if at > now:  # the correction of the profile has changed meanwhile
                self._watch(request, at)
            elif is_late and self.waiting == 1 and self.idle and now < (latest := self._hopeless_at(request, True)):
                self._watch(request, latest)  # a device has nothing else to do than to try
            elif is_late:
                del self._waiting[number]
                self.late -= 1
                hopeless.append(request)
            else:
                self._push(request, self._waiting[number] + LATE)
                self.late += 1
                if self._config.drop_late:
                    self._watch(request, self._hopeless_at(request))
        return hopeless

    def wake_at(self) -> float | None:
        """Return when `expire` is next due.

        Asking changes no decision, as a replay does not ask: an entry of a former wait does not count for a later one.
        """
        while self._starts and self._is_outdated(self._starts[0]):
            heappop(self._starts)
        return self._starts[0][0] if self._starts else None

    def ids(self) -> list[int]:
        """Return the ids of all waiting requests."""
        return list(self._waiting)

    def check(self) -> None:
        """Assert that each waiting request stands once in its queue, and is watched unless it is late and never dropped."""
        places = [
            number for heap in self._all_heaps() for place, number, _ in heap if self._waiting.get(number) == place
        ]
        assert sorted(places) == sorted(self._waiting), "queue"
        late = [number for number, place in self._waiting.items() if place >= LATE]
        assert len(late) == self.late, "late"
        unwatched = set() if self._config.drop_late else set(late)
        assert self._must.keys() == self._waiting.keys() - unwatched, "watched"

    def _note_free(self, worker: int) -> None:
        if worker in self._devices.free:
            heappush(self._idle, (self._devices.free[worker], worker))

    def _first_free(self) -> int | None:
        """Return which of the workers in use that are free became so first; None where none is."""
        while self._idle:
            since, worker = self._idle[0]
            if worker in self._active and self._devices.free.get(worker) == since:
                return worker
            heappop(self._idle)
        return None

    def _candidates(self, heap: list[Entry], stream: Stream, turn: Turn) -> list[Entry]:
        """Return the first entries: at most this device's share of all waiting ones, and what some runtime takes."""
        chosen, classes = [heappop(heap)], self._classes[stream.name]
        longest = classes[bisect_left(classes, chosen[0][2].length)]
        room = min(-(-self.waiting // max(len(self._active), 1)), stream.max_batch_of(longest))
        if not self._fairness.several:
            while len(chosen) < room and self._has_request(heap) and heap[0][0] < LATE:
                chosen.append(heappop(heap))
            return chosen
        heaps = self._alike(chosen[0][2], turn)
        while len(chosen) < room and (ready := [h for h in heaps if self._has_request(h) and h[0][0] < LATE]):
            chosen.append(heappop(min(ready, key=lambda heap: heap[0])))
        return chosen

    def _fill(self, requests: list[Request], stream: Stream, turn: frozenset[str]) -> list[Request]:
        """Add requests of tenants whose turn it is not, the least served first, where the launch takes no longer."""
        longest = max(request.length for request in requests)
        seconds = stream.cost(longest, len(requests))[1]
        for name in self._fairness.order():
            heap = self._alike(requests[0], frozenset((name,)))[0]
            while (
                name not in turn and self._has_request(heap) and heap[0][0] < LATE and heap[0][1] not in self._retries
            ):
                longest = max(longest, heap[0][2].length)
                count = len(requests) + 1
                if count > stream.max_batch_of(longest) or stream.cost(longest, count)[1] > seconds:
                    return requests
                requests.append(heappop(heap)[2])
        return requests

    def _first_heap(self, turn: Turn) -> list[Entry] | None:
        """Return the heap with the first request of these tenants; with only late ones it is nobody's turn alone."""
        heap = min(filter(self._has_request, self._all_heaps(turn)), key=lambda heap: heap[0], default=None)
        return None if heap and turn is not None and heap[0][0] >= LATE else heap

    def _alike(self, request: Request, turn: Turn) -> list[list[Entry]]:
        """Return these tenants' heaps of the request's stream and class of length."""
        at = bisect_left(self._classes[request.task], request.length)
        return [self._heaps[name][request.task][at] for name in (self._heaps if turn is None else turn)]

    def _apart(self, chosen: list[Entry]) -> list[Entry]:
        """Return those of the entries that may run together, and put the others back."""
        if not self._retries:
            return chosen
        together = set(self._retries.together([number for _, number, _ in chosen]))
        for entry in chosen:
            if entry[1] not in together:
                heappush(self._heap_of(entry[2]), entry)
        return [entry for entry in chosen if entry[1] in together]

    def _has_request(self, heap: list[Entry]) -> bool:
        """Return whether a request waits in the heap; outdated entries at its top are removed."""
        while heap and self._waiting.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return bool(heap)

    def _all_heaps(self, turn: Turn = None) -> Iterable[list[Entry]]:
        if turn is None:
            return self._every
        return (heap for tenant in turn for heaps in self._heaps[tenant].values() for heap in heaps)

    def _heap_of(self, request: Request) -> list[Entry]:
        task = request.task
        heaps = self._heaps.get(request.tenant) or self._add_tenant(request.tenant)
        return heaps[task][bisect_left(self._classes[task], request.length)]

    def _add_tenant(self, tenant: str) -> dict[str, list[list[Entry]]]:
        """Return new heaps of a tenant, in the place of those of tenants who no longer wait."""
        self._heaps = {name: heaps for name, heaps in self._heaps.items() if self._fairness.waits(name)}
        added = self._heaps[tenant] = {name: [[] for _ in classes] for name, classes in self._classes.items()}
        self._every = [heap for heaps in self._heaps.values() for own in heaps.values() for heap in own]
        return added

    def _push(self, request: Request, place: float) -> None:
        self._waiting[request.id] = place
        heappush(self._heap_of(request), (place, request.id, request))

    def _watch(self, request: Request, start: float) -> None:
        self._must[request.id] = start
        heappush(self._starts, (start, request.id, request))

    def _is_outdated(self, entry: Entry) -> bool:
        return self._must.get(entry[1]) != entry[0]

    def _alone(self, request: Request) -> float:
        return self._streams[request.task].cost(request.length)[1]

    def _start(self, request: Request) -> float:
        """Return the latest time at which it is to start."""
        return self._latest_end(request) - self._devices.seconds(self._alone(request))

    def _hopeless_at(self, request: Request, idle: bool = False) -> float:
        """Return from when on no launch could be in time, were it as fast as may be hoped (of an idle device: more)."""
        return request.deadline - self._devices.hoped(self._alone(request), idle)

    def _latest_end(self, request: Request) -> float:
        return latest_end(request, self._config.margin)


def _patience(stream: Stream, knowledge: Knowledge, config: Config) -> float:
    """Return the configured patience, or one by which a request of mean work is overtaken for about its SLO."""
    if config.patience is not None:
        return config.patience
    means = [other.mean_seconds for other in knowledge.streams]
    return stream.slo * len(means) / sum(means)
