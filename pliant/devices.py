"""The state of the devices in every scheduler: which are free, what runs, what must restart, how far the profile is
off.

Each result brings the seconds that the device measured. Their ratio to the profile, and the time that launches take
beyond them, correct every later prediction. Knows nothing of what runs.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from pliant.protocol import Failed, Finished, Launch


class Carried(Protocol):
    """A request as a system's scheduler keeps it while it runs."""

    @property
    def id(self) -> int: ...


C = TypeVar("C", bound=Carried)

LEARN = 0.1  # weight of the latest launch in the corrections
RATIOS = (0.25, 4.0)  # bounds of measured over expected seconds
MOST_BEYOND = 0.1  # seconds that a launch counts as beyond the device's own, at most


class Running(NamedTuple, Generic[C]):
    """A launch that has not ended. Times are seconds on the driver's clock."""

    launch: Launch
    carried: tuple[C, ...]  # its requests, without those whose clients have left since
    expected: float  # seconds by the profile
    launched: float
    until: float  # expected end


class Devices(Generic[C]):
    """`workers` devices, numbered from 0, all free at the start. `restart_pause`: seconds after a failed restart."""

    def __init__(self, workers: int, restart_pause: float) -> None:
        self.free: dict[int, None] = dict.fromkeys(range(workers))  # a set in the order of becoming free
        self.slowdown = 1.0  # measured over expected seconds, smoothed
        self.turnaround = 0.0  # seconds of a launch beyond the device's own, smoothed
        self._workers, self._pause = workers, restart_pause
        self._running: dict[int, Running[C]] = {}
        self._broken: list[tuple[float, int]] = []  # (when to restart, worker)
        self._launches = 0

    @property
    def running(self) -> list[Running[C]]:
        return list(self._running.values())

    def busy(self, now: float) -> list[float]:
        """Return the times at which the busy workers should be free, ascending."""
        return sorted(max(now, running.until) for running in self._running.values() if running.launch.kind == "run")

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
        """Occupy a free worker and return the launch. `carried` comes back at its end; `expected`: its seconds."""
        del self.free[worker]
        requests = tuple([request.id for request in carried])
        seconds = self.seconds(expected)
        return self._occupy(Launch(self._launches, worker, requests, setting, kind, seconds), carried, expected, now)

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
        self.free[running.launch.worker] = None
        if running.launch.kind == "run":
            low, high = RATIOS
            self.slowdown += LEARN * (min(max(event.seconds / running.expected, low), high) - self.slowdown)
            beyond = min(max(now - running.launched - event.seconds, 0.0), MOST_BEYOND)
            self.turnaround += LEARN * (beyond - self.turnaround)
        return running

    def fail(self, event: Failed, now: float) -> Running[C]:
        """Plan the restart of a failed launch's worker: at once, or after a pause if a restart failed. Returns what
        ran.

        A worker that is not lost is free: the model raised an error and the device lives.
        """
        running = self._running.pop(event.launch)
        if not event.lost and running.launch.kind == "run":
            self.free[running.launch.worker] = None
            return running
        self._broken.append((now + (0.0 if running.launch.kind == "run" else self._pause), running.launch.worker))
        return running

    def restarts(self, now: float) -> list[Launch]:
        """Launch the restarts that are due."""
        due = [worker for at, worker in self._broken if at <= now]
        self._broken = [(at, worker) for at, worker in self._broken if at > now]
        return [self._occupy(Launch(self._launches, worker, kind="restart"), (), 0.0, now) for worker in due]

    def wake_at(self) -> float | None:
        """Return the time of the next restart; None if there is none."""
        return min((at for at, _ in self._broken), default=None)

    def check(self) -> None:
        """Raises AssertionError unless each worker is either free, busy or broken."""
        busy = [running.launch.worker for running in self._running.values()]
        broken = [worker for _, worker in self._broken]
        assert sorted([*self.free, *busy, *broken]) == list(range(self._workers)), "workers"

    def _occupy(self, launch: Launch, carried: tuple[C, ...], expected: float, now: float) -> Launch:
        self._launches += 1
        self._running[launch.id] = Running(launch, carried, expected, now, now + self.seconds(expected))
        return launch
