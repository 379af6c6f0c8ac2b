"""The state of the devices in every scheduler: which are free, what runs, what must restart, how far the profile is
off.

A device may be given its next launch shortly before it is free (`ahead`), so that the way there does not leave it idle:
that launch waits behind the running one, and is timed from when that one ends.

Each result brings the seconds that the device measured. Their ratio to the profile, and the time that launches take
beyond them, correct every later prediction. Knows nothing of what runs.

No call costs more than the logarithm of the number of devices (amortised), but for those whose answer or purpose is all
of them: `running`, `busy` and `check`.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Container, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar

from pliant.protocol import Failed, Finished, Launch


class Carried(Protocol):
    """A request as a system's scheduler keeps it while it runs."""

    @property
    def id(self) -> int: ...


C = TypeVar("C", bound=Carried)

LEARN = 0.1  # weight of the latest launch
SEEN = 9  # launches whose middle counts
NEAR = 2.0  # times the middle, or its part, beyond which a launch counts as this; and beyond which the middle itself counts
RARE = 0.02  # weight of the latest launch in the mean of what pauses cost
RATIOS = (1e-3, 1e3)  # bounds of what one launch can say
AHEAD_SHARE = 0.25  # share of a launch before whose expected end the next one may be decided, at most
TRIED = 1 / 32  # of the profile's seconds: what would have to be faster is not even tried
MOST_BEYOND = 0.1  # seconds that a launch counts as beyond the device's own, at most


class Slowness:
    """How many times the profile's seconds launches take: right soon after a change, unmoved by a pause.

    The latest launches' middle says where the ratio lies, so a pause, a warm-up or a clock that jumps, which are few among
    them, move nothing. Near the middle the ratio is smoothed, as noise wants it. Begins with the profile being right, on
    the word of `trusted` launches that never ran.
    """

    def __init__(self, trusted: int = 2) -> None:
        self._latest, self._trusted = deque([1.0] * trusted, SEEN), trusted
        self.mean = 1.0
        self.least = 1.0  # of the latest launches: what a launch may hope for
        self.excess = 0.0  # mean seconds of a launch beyond what counts: what pauses cost

    def learn(self, measured: float, expected: float) -> None:
        """Note the seconds that a launch took and those of the profile, both above 0."""
        low, high = RATIOS
        ratio = min(max(measured / expected, low), high)
        self._latest.append(ratio)
        middle = sorted(self._latest)[(len(self._latest) - 1) // 2]
        self.mean += LEARN * (min(max(ratio, middle / NEAR), middle * NEAR) - self.mean)
        if not middle / NEAR <= self.mean <= middle * NEAR:
            self.mean = middle
        self.least = min(self._latest)
        if len(self._latest) > 2 * self._trusted:  # before, a slow device looks as if it paused
            self.excess += RARE * (max(measured - middle * NEAR * expected, 0.0) - self.excess)


class Running(NamedTuple, Generic[C]):
    """A launch that has not ended. Times are seconds on the driver's clock."""

    launch: Launch
    carried: tuple[C, ...]  # its requests, without those whose clients have left since
    expected: float  # seconds by the profile
    launched: float  # when it began; expected, as long as it waits behind another
    until: float  # expected end
    behind: int | None = None  # the launch of the same worker that it waits behind

    @property
    def begun(self) -> bool:
        return self.behind is None


class Devices(Generic[C]):
    """`workers` devices, numbered from 0, all free at the start. `restart_pause`: seconds after a failed restart.

    The time that its methods are given never goes back.
    """

    def __init__(self, workers: int, restart_pause: float) -> None:
        self.free = OrderedDict[int, int]((worker, worker) for worker in range(workers))
        """The free workers in the order of becoming free, with a number that grows in this order."""
        self._slowness = Slowness()
        self.turnaround = 0.0  # seconds of a launch beyond the device's own, smoothed
        self.ended = -math.inf  # when the latest launch did
        self._workers, self._pause = workers, restart_pause
        self._freed = workers  # the next number in `free`
        self._running: dict[int, Running[C]] = {}
        self._on: dict[int, list[int]] = {}  # worker -> its launches, the one that runs and the one behind it
        self._carrier: dict[int, int] = {}  # request -> its launch
        self._broken: dict[int, tuple[float, int]] = {}  # worker -> (when to restart, number of the failure)
        self._due: list[tuple[float, int, int]] = []  # a heap of (when, number, worker): broken, with nothing on it
        self._failures = 0
        self._lead: float | None = None  # seconds, of the latest question about launches ahead
        self._closed: list[tuple[float, int]] = []  # heaps of launches that may be followed: later, by when that opens,
        self._open: list[tuple[float, int]] = []  # and by now, by expected end; some entries are outdated
        self._launches = 0

    @property
    def slowdown(self) -> float:
        """Measured over expected seconds, smoothed; see `Slowness`."""
        return self._slowness.mean

    @property
    def least_slowdown(self) -> float:
        """The least of the latest launches: nothing that could be in time at it is hopeless."""
        return self._slowness.least

    @property
    def excess(self) -> float:
        """Mean seconds by which pauses prolong a launch."""
        return self._slowness.excess

    def forget(self) -> None:
        """Begin anew with a slowdown of 1, as another profile holds from now on."""
        self._slowness = Slowness()

    @property
    def running(self) -> list[Running[C]]:
        return list(self._running.values())

    def busy(self, now: float) -> list[float]:
        """Return the times at which the busy workers should be free, ascending."""
        until: dict[int, float] = {}
        for running in self._running.values():
            if running.launch.kind == "run":
                worker = running.launch.worker
                until[worker] = max(now, running.until, until.get(worker, now))
        return sorted(until.values())

    def ahead(self, now: float, lead: float) -> tuple[int, float] | None:
        """Return the worker to be given its next launch now, while it still runs one, and when it should be free.

        That is, of those that should be free within `lead` seconds and have no next launch, the first; None without any.
        """
        self._look_ahead(now, lead)
        if not self._open:
            return None
        until, id = self._open[0]
        return self._running[id].launch.worker, max(now, until)

    def ahead_at(self, now: float, lead: float) -> float | None:
        """Return when a further worker may be given its next launch ahead; None if there is none."""
        self._look_ahead(now, lead)
        return self._closed[0][0] if self._closed else None

    def _look_ahead(self, now: float, lead: float) -> None:
        """Bring both heaps up to date, at least their first entries."""
        if lead != self._lead or len(self._closed) + len(self._open) > 4 * self._workers + 16:  # mostly outdated
            self._lead, self._open = lead, []
            self._closed = [(_opens(r, lead), id) for id, r in self._running.items() if self._is_last(r)]
            heapify(self._closed)
        while self._closed:
            opens, id = self._closed[0]
            running = self._running.get(id)
            if running is None or not self._is_last(running) or _opens(running, lead) != opens:
                heappop(self._closed)
            elif opens <= now:
                heappop(self._closed)
                heappush(self._open, (running.until, id))
            else:
                break
        while self._open:
            running = self._running.get(self._open[0][1])
            if running is not None and self._is_last(running):
                break
            heappop(self._open)

    def _is_last(self, running: Running[C]) -> bool:
        """Whether the launch runs requests and none waits behind it."""
        return (
            running.begun and running.launch.kind == "run" and self._on[running.launch.worker][-1] == running.launch.id
        )

    def _may_be_followed(self, id: int) -> None:
        if self._lead is not None and self._is_last(running := self._running[id]):
            heappush(self._closed, (_opens(running, self._lead), id))

    def seconds(self, expected: float) -> float:
        """Return the seconds that a launch takes from its decision to its end, corrected by former launches."""
        return expected * self.slowdown + self.turnaround

    def hoped(self, expected: float, idle: bool = False) -> float:
        """Return the seconds that a launch takes at least, were it as fast as the fastest of late.

        On an `idle` device it is tried whether it is far faster than that: no belief lasts because it is never tested.
        """
        least = min(self.least_slowdown, self.slowdown)
        return expected * (min(least, TRIED) if idle else least)

    def launch(
        self,
        worker: int,
        carried: tuple[C, ...],
        expected: float,
        now: float,
        setting: int = 0,
        kind: str = "run",
    ) -> Launch:
        """Occupy a free worker and return the launch. `carried` comes back at its end; `expected`: its seconds.

        On a worker that `ahead` has named the launch waits behind the one that runs.
        """
        front = None
        if worker in self.free:
            del self.free[worker]
        else:
            front = self._running[self._on[worker][0]]
        requests = tuple([request.id for request in carried])
        seconds = self.seconds(expected)
        launch = Launch(self._launches, worker, requests, setting, kind, seconds)
        if front is None:
            return self._occupy(launch, carried, expected, now)
        return self._occupy(launch, carried, expected, max(now, front.until), front.launch.id)

    def cancel(self, request: int) -> bool:
        """Take a request out of what a running launch carries, and return whether a launch carries it."""
        id = self._carrier.get(request)
        if id is None:
            return False
        running = self._running[id]
        carried = tuple([carried for carried in running.carried if carried.id != request])
        self._running[id] = running._replace(carried=carried)
        return True

    def finish(self, event: Finished, now: float) -> Running[C]:
        """Free the worker of a launch and learn from its seconds. Returns what ran."""
        running = self._end(event.launch)
        self.ended = now
        self._go_on(running, now)
        if running.launch.kind == "run":
            self._slowness.learn(event.seconds, running.expected)
            beyond = min(max(now - running.launched - event.seconds, 0.0), MOST_BEYOND)
            self.turnaround += LEARN * (beyond - self.turnaround)
        return running

    def fail(self, event: Failed, now: float) -> Running[C]:
        """Plan the restart of a failed launch's worker: at once, or after a pause if a restart failed. Returns what
        ran.

        A worker that is not lost is free: the model raised an error and the device lives. A launch that waited behind one
        whose worker is lost fails in turn, without having begun; the restart comes after that.
        """
        running = self._end(event.launch)
        kind, worker = running.launch.kind, running.launch.worker
        if running.begun:
            if not event.lost and kind == "run":
                self._go_on(running, now)
                return running
            self._broken[worker] = now + (0.0 if kind == "run" else self._pause), self._failures
            self._failures += 1
        if worker in self._on:
            self._may_be_followed(self._on[worker][0])
        elif worker in self._broken:
            heappush(self._due, (*self._broken[worker], worker))
        return running

    def lost(self, worker: int) -> bool:
        """Whether the worker waits for its restart."""
        return worker in self._broken

    def _end(self, id: int) -> Running[C]:
        """Take a launch out of the books and return it."""
        running = self._running.pop(id)
        for request in running.launch.requests:
            del self._carrier[request]
        launches = self._on[running.launch.worker]
        launches.remove(id)
        if not launches:
            del self._on[running.launch.worker]
        return running

    def _go_on(self, ended: Running[C], now: float) -> None:
        """Begin the launch that waits behind the one that ended, or free its worker."""
        worker = ended.launch.worker
        if worker in self._on:
            id = self._on[worker][0]
            running = self._running[id]
            until = now + self.seconds(running.expected)
            self._running[id] = running._replace(launched=now, until=until, behind=None)
            self._may_be_followed(id)
        else:
            self.free[worker] = self._freed
            self._freed += 1

    def restarts(self, now: float) -> list[Launch]:
        """Launch the restarts that are due, of workers that nothing waits for any more, in the order of the failures."""
        due: list[tuple[int, int]] = []
        while self._due and self._due[0][0] <= now:
            _, number, worker = heappop(self._due)
            del self._broken[worker]
            due.append((number, worker))
        return [self._occupy(Launch(self._launches, w, kind="restart"), (), 0.0, now) for _, w in sorted(due)]

    def wake_at(self) -> float | None:
        """Return the time of the next restart; None if there is none."""
        return self._due[0][0] if self._due else None

    def check(self) -> None:
        """Raises AssertionError unless each worker is either free, busy or broken."""
        busy = [running.launch.worker for running in self._running.values() if running.begun]
        behind = [running.launch.worker for running in self._running.values() if not running.begun]
        assert sorted([*self.free, *busy, *self._broken]) == list(range(self._workers)), "workers"
        assert len(set(behind)) == len(behind) and not set(behind) & set(self.free), "launches behind others"
        assert sorted(id for ids in self._on.values() for id in ids) == sorted(self._running), "launches by worker"

    def _occupy(
        self, launch: Launch, carried: tuple[C, ...], expected: float, begin: float, behind: int | None = None
    ) -> Launch:
        self._launches += 1
        self._running[launch.id] = Running(launch, carried, expected, begin, begin + self.seconds(expected), behind)
        self._on.setdefault(launch.worker, []).append(launch.id)
        for request in launch.requests:
            self._carrier[request] = launch.id
        if behind is None:
            self._may_be_followed(launch.id)
        return launch


def _opens(running: Running[C], lead: float) -> float:
    """Return when the next launch of this one's worker may be decided."""
    return running.until - min(lead, AHEAD_SHARE * (running.until - running.launched))


class Retries:
    """The requests that have failed and still wait or run. `attempts`: failed launches, the last alone, of a request."""

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._tries: dict[int, int] = {}  # failed launches, by request
        self._group: dict[int, int] = {}  # requests that may run together have the same number
        self._numbers = count()

    def __bool__(self) -> bool:
        """Return whether any request has failed."""
        return bool(self._tries)

    def __contains__(self, request: int) -> bool:
        """Return whether the request has failed."""
        return request in self._tries

    def failed(self, requests: Sequence[int], alone: bool, lost: bool) -> list[int]:
        """Note that a launch of these requests failed, and return those that are given up.

        `alone`: no other request was in the launch, not even one whose client has left since. `lost`: so is the device.
        """
        for request in requests:
            self._tries[request] = self._tries.get(request, 0) + 1
        given_up = [request for request in requests if alone and self._tries[request] >= self._attempts]
        for request in given_up:
            self.forget(request)
        size = 1 if lost else max(1, len(requests) // 2)
        for start in range(0, 0 if given_up else len(requests), size):
            self._group |= dict.fromkeys(requests[start : start + size], next(self._numbers))
        return given_up

    def together(self, requests: Sequence[int]) -> Sequence[int]:
        """Return those of the requests that run together now: all, unless some have failed.

        Then these come first: the first of them, with those of its group.
        """
        if not self._group:
            return requests
        first = next((request for request in requests if request in self._group), None)
        if first is None:
            return requests
        group = self._group[first]
        return [request for request in requests if self._group.get(request) == group]

    def forget(self, request: int) -> None:
        """Note that the request is answered, dropped or cancelled, or has gone on to another level."""
        if self._tries:
            self._tries.pop(request, None)
            self._group.pop(request, None)

    def check(self, present: Container[int]) -> None:
        """Raise `AssertionError` if a request is kept that neither waits nor runs."""
        assert self._tries.keys() == self._group.keys(), "a failed request without a group"
        assert all(request in present for request in self._tries), "tries of a request that is gone"
