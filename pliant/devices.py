"""The state of the devices in every scheduler: which are free, what runs, what must restart, how far the profile is
off.

A device may be given its next launch shortly before it is free (`ahead`), so that the way there does not leave it idle:
that launch waits behind the running one, and is timed from when that one ends.

Each result brings the seconds that the device measured. Their ratio to the profile, and the time that launches take
beyond them, correct every later prediction. Knows nothing of what runs.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, Protocol, TypeVar

from pliant.protocol import Failed, Finished, Launch
from pliant.slowness import Slowness


class Carried(Protocol):
    """A request as a system's scheduler keeps it while it runs."""

    @property
    def id(self) -> int: ...


C = TypeVar("C", bound=Carried)

LEARN = 0.1  # weight of the latest launch in what launches take beyond the device's own
AHEAD_SHARE = 0.25  # share of a launch before whose expected end the next one may be decided, at most
MOST_BEYOND = 0.1  # seconds that a launch counts as beyond the device's own, at most


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
    """`workers` devices, numbered from 0, all free at the start. `restart_pause`: seconds after a failed restart."""

    def __init__(self, workers: int, restart_pause: float) -> None:
        self.free: dict[int, None] = dict.fromkeys(range(workers))  # a set in the order of becoming free
        self._slowness = Slowness()
        self.turnaround = 0.0  # seconds of a launch beyond the device's own, smoothed
        self.ended = -math.inf  # when the latest launch did
        self._workers, self._pause = workers, restart_pause
        self._running: dict[int, Running[C]] = {}
        self._broken: list[tuple[float, int]] = []  # (when to restart, worker)
        self._launches = 0

    @property
    def slowdown(self) -> float:
        """Measured over expected seconds, smoothed; see pliant/slowness.py."""
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
        due = [r for r in self._last() if now >= _opens(r, lead)]
        first = min(due, key=lambda running: running.until, default=None)
        return None if first is None else (first.launch.worker, max(now, first.until))

    def ahead_at(self, now: float, lead: float) -> float | None:
        """Return when a further worker may be given its next launch ahead; None if there is none."""
        return min((at for running in self._last() if (at := _opens(running, lead)) > now), default=None)

    def _last(self) -> list[Running[C]]:
        """Return the running launches of requests that none waits behind."""
        followed = {running.behind for running in self._running.values()}
        return [r for id, r in self._running.items() if r.begun and r.launch.kind == "run" and id not in followed]

    def seconds(self, expected: float) -> float:
        """Return the seconds that a launch takes from its decision to its end, corrected by former launches."""
        return expected * self.slowdown + self.turnaround

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
            front = next(running for running in self._running.values() if running.launch.worker == worker)
        requests = tuple([request.id for request in carried])
        seconds = self.seconds(expected)
        launch = Launch(self._launches, worker, requests, setting, kind, seconds)
        if front is None:
            return self._occupy(launch, carried, expected, now)
        return self._occupy(launch, carried, expected, max(now, front.until), front.launch.id)

    def cancel(self, request: int) -> bool:
        """Take a request out of what a running launch carries, and return whether a launch carries it."""
        for id, running in self._running.items():
            if request in running.launch.requests:
                carried = tuple([carried for carried in running.carried if carried.id != request])
                self._running[id] = running._replace(carried=carried)
                return True
        return False

    def finish(self, event: Finished, now: float) -> Running[C]:
        """Free the worker of a launch and learn from its seconds. Returns what ran."""
        running = self._running.pop(event.launch)
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
        running = self._running.pop(event.launch)
        if not running.begun:
            return running
        if not event.lost and running.launch.kind == "run":
            self._go_on(running, now)
            return running
        self._broken.append((now + (0.0 if running.launch.kind == "run" else self._pause), running.launch.worker))
        return running

    def lost(self, worker: int) -> bool:
        """Whether the worker waits for its restart."""
        return any(broken == worker for _, broken in self._broken)

    def _go_on(self, ended: Running[C], now: float) -> None:
        """Begin the launch that waits behind the one that ended, or free its worker."""
        for id, running in self._running.items():
            if running.behind == ended.launch.id:
                until = now + self.seconds(running.expected)
                self._running[id] = running._replace(launched=now, until=until, behind=None)
                return
        self.free[ended.launch.worker] = None

    def restarts(self, now: float) -> list[Launch]:
        """Launch the restarts that are due, of workers that nothing waits for any more."""
        occupied = self._occupied()
        due = [worker for at, worker in self._broken if at <= now and worker not in occupied]
        self._broken = [(at, worker) for at, worker in self._broken if worker not in due]
        return [self._occupy(Launch(self._launches, worker, kind="restart"), (), 0.0, now) for worker in due]

    def wake_at(self) -> float | None:
        """Return the time of the next restart; None if there is none."""
        occupied = self._occupied()
        return min((at for at, worker in self._broken if worker not in occupied), default=None)

    def _occupied(self) -> set[int]:
        return {running.launch.worker for running in self._running.values()}

    def check(self) -> None:
        """Raises AssertionError unless each worker is either free, busy or broken."""
        busy = [running.launch.worker for running in self._running.values() if running.begun]
        behind = [running.launch.worker for running in self._running.values() if not running.begun]
        broken = [worker for _, worker in self._broken]
        assert sorted([*self.free, *busy, *broken]) == list(range(self._workers)), "workers"
        assert len(set(behind)) == len(behind) and not set(behind) & set(self.free), "launches behind others"

    def _occupy(
        self, launch: Launch, carried: tuple[C, ...], expected: float, begin: float, behind: int | None = None
    ) -> Launch:
        self._launches += 1
        self._running[launch.id] = Running(launch, carried, expected, begin, begin + self.seconds(expected), behind)
        return launch


def _opens(running: Running[C], lead: float) -> float:
    """Return when the next launch of this one's worker may be decided."""
    return running.until - min(lead, AHEAD_SHARE * (running.until - running.launched))
