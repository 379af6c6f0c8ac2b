"""The books of devices that every scheduler keeps: who is free, what runs, what must be restarted, how far profiles are off.

Durations measured on the device come back with each result; their ratio to the profile, and the time that launches take
beyond them, correct every later prediction. Knows nothing of what runs.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from pliant.protocol import Failed, Finished, Launch

T = TypeVar("T")

LEARN = 0.1  # weight of the latest launch in what is learnt
RATIOS = (0.25, 4.0)  # measured over expected seconds, within which it counts
MOST_BEYOND = 0.1  # seconds of a launch beyond the device's own


class Running(NamedTuple, Generic[T]):
    launch: Launch
    carried: T  # whatever the scheduler needs to know of it at its end
    expected: float  # seconds by the profile
    launched: float
    until: float  # when it should end


class Devices(Generic[T]):
    """`workers` devices, numbered from 0, all free at the start."""

    def __init__(self, workers: int, restart_pause: float) -> None:
        self.free: dict[int, None] = dict.fromkeys(range(workers))  # a set in order of becoming free
        self.slowdown = 1.0
        self.turnaround = 0.0  # seconds of a launch beyond the device's own, smoothed
        self._workers, self._pause = workers, restart_pause
        self._running: dict[int, Running[T]] = {}
        self._broken: list[tuple[float, int]] = []  # (when to restart, worker)
        self._launches = 0

    @property
    def running(self) -> list[Running[T]]:
        return list(self._running.values())

    def busy(self, now: float) -> list[float]:
        """When the workers that run something should be free, ascending."""
        return sorted(max(now, one.until) for one in self._running.values() if one.launch.kind == "run")

    def seconds(self, expected: float) -> float:
        """What a launch is to take from its decision to its end, by what was learnt."""
        return expected * self.slowdown + self.turnaround

    def launch(
        self,
        worker: int,
        requests: tuple[int, ...],
        carried: T,
        expected: float,
        now: float,
        setting: int = 0,
        kind: str = "run",
    ) -> Launch:
        """Occupy a free worker."""
        del self.free[worker]
        return self._occupy(Launch(self._launches, worker, requests, setting, kind), carried, expected, now)

    def finish(self, event: Finished, now: float) -> Running[T]:
        """Free its worker; a run teaches how far the profile is off."""
        one = self._running.pop(event.launch)
        self.free[one.launch.worker] = None
        if one.launch.kind == "run":
            low, high = RATIOS
            self.slowdown += LEARN * (min(max(event.seconds / one.expected, low), high) - self.slowdown)
            beyond = min(max(now - one.launched - event.seconds, 0.0), MOST_BEYOND)
            self.turnaround += LEARN * (beyond - self.turnaround)
        return one

    def fail(self, event: Failed, now: float) -> Running[T]:
        """Its worker is to be restarted: at once, or after a pause where the restart itself failed."""
        one = self._running.pop(event.launch)
        self._broken.append((now + (0.0 if one.launch.kind == "run" else self._pause), one.launch.worker))
        return one

    def restarts(self, nothing: T, now: float) -> list[Launch]:
        """Restarts that are due."""
        due = [worker for at, worker in self._broken if at <= now]
        self._broken = [(at, worker) for at, worker in self._broken if at > now]
        return [self._occupy(Launch(self._launches, worker, kind="restart"), nothing, 0.0, now) for worker in due]

    def wake_at(self) -> float | None:
        return min((at for at, _ in self._broken), default=None)

    def check(self) -> None:
        """Each worker is free, busy or broken."""
        busy = [one.launch.worker for one in self._running.values()]
        broken = [worker for _, worker in self._broken]
        assert sorted([*self.free, *busy, *broken]) == list(range(self._workers)), "workers"

    def _occupy(self, launch: Launch, carried: T, expected: float, now: float) -> Launch:
        self._launches += 1
        self._running[launch.id] = Running(launch, carried, expected, now, now + self.seconds(expected))
        return launch
