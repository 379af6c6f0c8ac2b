"""Every device holds every runtime: one queue for all, and a free device runs each text in the runtime that suits it best.

Compiled runtimes of one encoder share its weights, so that a device has room for all of them, and nothing need be planned:
what is left to decide is the order. First comes who arrived earliest, but each request is overtaken by shorter work: the
order is that of arrival + patience * seconds of its own work. (Without patience: first come first served; with endless
patience: shortest first, and under overload the longest starve.) Who cannot be in time any more goes after all others, or is
dropped. Waiting requests are grouped by length, so that a launch can take several of about one length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from pliant.bins.knowledge import Config, Knowledge, Stream
from pliant.bins.work import Requests, Work, batch_size, until
from pliant.devices import Devices
from pliant.protocol import Request

LATE = 1e12  # seconds: the place in the queue of those that are late anyway

Entry = tuple[float, int, Request]
"""Place in the order, id, request: a heap's element."""


class SharedPool:
    """The queue. `devices` is read for what was learnt about the profile."""

    def __init__(self, knowledge: Knowledge, config: Config, devices: Devices[Requests]) -> None:
        self._config, self._devices = config, devices
        self._streams = {stream.name: stream for stream in knowledge.streams}
        self._heaps: dict[str, list[list[Entry]]] = {
            stream.name: [[] for _ in stream.classes] for stream in knowledge.streams
        }
        self._classes = {stream.name: stream.classes for stream in knowledge.streams}
        self._patience = {stream.name: _patience(stream, knowledge, config) for stream in knowledge.streams}
        self._waiting: dict[int, float] = {}  # place in the order; an entry of a heap with another place is a leftover
        self._latest: list[Entry] = []  # by when a request must start, and leftovers
        self._must: dict[int, float] = {}  # the time of its entry in `_latest` that is no leftover
        self._active = set(range(config.workers))
        self.late = 0  # of those that wait, those put after all others

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, now: float) -> int | None:
        """Take it into the queue. Gives a free worker, if there is one."""
        return self.again(request, now)

    def again(self, request: Request, _now: float) -> int | None:
        seconds = self._alone(request)
        self._push(request, request.arrival + self._patience[request.task] * seconds)
        self._watch(request, self._start(request))
        return next((worker for worker in self._devices.free if worker in self._active), None)

    def ended(self, worker: int, _kind: str, _work: Requests, _now: float) -> list[int]:
        """A launch of the worker ended. Gives workers to look at."""
        return [worker]

    def lost(self, _worker: int, _now: float) -> list[int]:
        """The worker failed: nothing waits for it in particular, but what it ran may be work for all that idle."""
        return list(self._devices.free)

    def woken(self, _now: float) -> list[int]:
        """There is nothing to plan."""
        return []

    def enlist(self, worker: int) -> list[int]:
        """A spare worker is to serve. Gives workers to look at."""
        self._active.add(worker)
        return [worker]

    def retire(self, active: Sequence[int]) -> int | None:
        """One of these workers gets no more requests: the last, so that those in use stay the same."""
        worker = max(active)
        self._active.discard(worker)
        return worker

    def take(self, worker: int, now: float) -> Work | None:
        """What comes first, and what may go with it."""
        if worker not in self._active:
            return None
        heap = min(filter(self._first, self._all()), key=lambda heap: heap[0], default=None)
        if heap is None:
            return None
        stream = self._streams[heap[0][2].task]
        chosen = self._candidates(heap, stream)
        requests = [request for _, _, request in chosen]
        size = batch_size(requests, stream.batches, stream.cost, self._until, now, self.waiting / len(self._active))
        for entry in chosen[size:]:
            heappush(heap, entry)
        for request in requests[:size]:
            self._must.pop(request.id, None)
            self.late -= self._waiting.pop(request.id) >= LATE
        return Work(tuple(requests[:size]), *stream.cost(max(one.length for one in requests[:size]), size))

    def expire(self, now: float) -> list[Request]:
        """Those that cannot be in time any more: given back where they are to be dropped, else put after all others."""
        gone: list[Request] = []
        while self._latest and self._latest[0][0] <= now:
            if self._is_leftover(entry := heappop(self._latest)):
                continue
            _, id, request = entry
            start = self._start(request)
            del self._must[id]
            if start > now:  # what was learnt about the profile has changed meanwhile
                self._watch(request, start)
            elif self._config.drop_late:
                del self._waiting[id]
                gone.append(request)
            else:
                self._push(request, self._waiting[id] + LATE)
                self.late += 1
        return gone

    def wake_at(self) -> float | None:
        """Decides nothing: a replay does not ask. (So an entry of a former wait must not count for a later one.)"""
        while self._latest and self._is_leftover(self._latest[0]):
            heappop(self._latest)
        return self._latest[0][0] if self._latest else None

    def check(self) -> None:
        """Each waiting request stands once in the queue of its class, and all but the late ones are watched."""
        places = [id for heap in self._all() for place, id, _ in heap if self._waiting.get(id) == place]
        assert sorted(places) == sorted(self._waiting), "queue"
        late = [id for id, place in self._waiting.items() if place >= LATE]
        assert len(late) == self.late, "late"
        assert self._must.keys() == self._waiting.keys() - set(late), "watched"

    def _candidates(self, heap: list[Entry], stream: Stream) -> list[Entry]:
        """Its first entries: as many as are this device's share of all that waits, and as some runtime takes."""
        chosen, classes = [heappop(heap)], self._classes[stream.name]
        longest = classes[bisect_left(classes, chosen[0][2].length)]
        most = min(-(-self.waiting // max(len(self._active), 1)), stream.most_of(longest))
        while len(chosen) < most and self._first(heap) and heap[0][0] < LATE:
            chosen.append(heappop(heap))
        return chosen

    def _first(self, heap: list[Entry]) -> bool:
        """Whether anything waits in it; its first entry is none of the leftovers then."""
        while heap and self._waiting.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return bool(heap)

    def _all(self) -> Iterator[list[Entry]]:
        return (heap for heaps in self._heaps.values() for heap in heaps)

    def _push(self, request: Request, place: float) -> None:
        at = bisect_left(self._classes[request.task], request.length)
        self._waiting[request.id] = place
        heappush(self._heaps[request.task][at], (place, request.id, request))

    def _watch(self, request: Request, start: float) -> None:
        self._must[request.id] = start
        heappush(self._latest, (start, request.id, request))

    def _is_leftover(self, entry: Entry) -> bool:
        return self._must.get(entry[1]) != entry[0]

    def _alone(self, request: Request) -> float:
        return self._streams[request.task].cost(request.length)[1]

    def _start(self, request: Request) -> float:
        """When it would have to start at the latest."""
        return self._until(request) - self._devices.seconds(self._alone(request))

    def _until(self, request: Request) -> float:
        return until(request, self._config.margin)


def _patience(stream: Stream, knowledge: Knowledge, config: Config) -> float:
    """A request of the mean work is overtaken for about as long as its answer may take."""
    if config.patience is not None:
        return config.patience
    means = [one.mean_seconds for one in knowledge.streams]
    return stream.slo * len(means) / sum(means)
