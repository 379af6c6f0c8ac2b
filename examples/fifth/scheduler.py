"""The scheduler: as many words as let all that wait be answered before the earliest deadline among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fifth.model import Task
from pliant.devices import Devices
from pliant.latency import LatencyTable
from pliant.protocol import Action, Answer, Arrived, Cancelled, Drop, Event, Failed, Finished, Launch, Request, Result
from pliant.report import Report, report
from pliant.simulator import simulate

RESTART_PAUSE, MARGIN = 1.0, 0.8  # seconds after a failed restart; share of the time to a deadline, for launches


class WordsScheduler:
    """Takes requests in the order of their deadlines. A request whose worker fails is not tried again."""

    def __init__(self, latency: LatencyTable, workers: int = 1, max_waiting: int = 2048) -> None:
        self._latency, self._max_waiting = latency, max_waiting
        self._waiting: dict[int, Request] = {}
        self._devices = Devices[Request](workers, RESTART_PAUSE)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def handle(self, event: Event, now: float) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Arrived(request) if len(self._waiting) >= self._max_waiting:
                actions.append(Drop(request.id, "full"))
            case Arrived(request):
                self._waiting[request.id] = request
            case Cancelled(id):
                if self._waiting.pop(id, None) is None:
                    self._devices.cancel(id)
            case Finished(launch):
                actions += [Answer(each.id, launch) for each in self._devices.finish(event, now).carried]
            case Failed():
                actions += [Drop(each.id, "failed") for each in self._devices.fail(event, now).carried]
        actions += self._devices.restarts(now)
        while self._waiting and self._devices.free:
            actions.append(self._next(now))
        return actions

    def wake_at(self) -> float | None:
        return self._devices.wake_at()

    def check(self) -> None:
        self._devices.check()

    def _next(self, now: float) -> Action:
        """Launch what is most urgent, or drop it where it cannot be in time any more."""
        queue = sorted(self._waiting.values(), key=lambda each: (each.deadline, each.id))
        if now + self._devices.seconds(self._latency.at(self._latency.settings[0], 1)) > queue[0].deadline:
            return Drop(self._waiting.pop(queue[0].id).id, "late")
        words = self._words(len(queue), MARGIN * (queue[0].deadline - now))
        batch = tuple(self._waiting.pop(request.id) for request in queue[: self._latency.batches[-1]])
        expected = self._latency.at(words, len(batch))
        return self._devices.launch(next(iter(self._devices.free)), batch, expected, now, words)

    def _words(self, waiting: int, seconds: float) -> int:
        """Return the most words at which so many requests take at most so long, one launch after the other."""
        launches, size = -(-waiting // self._latency.batches[-1]), min(waiting, self._latency.batches[-1])
        needed = {w: launches * self._devices.seconds(self._latency.at(w, size)) for w in self._latency.settings}
        return max((words for words, time in needed.items() if time <= seconds), default=self._latency.settings[0])


def simulated(task: Task, requests: Sequence[Request], seed: int) -> Report:
    """Return what becomes of requests on devices that are as fast and as often right as the profiled one."""
    rng = np.random.default_rng(seed)

    def execute(launch: Launch) -> tuple[float, Finished]:
        seconds = task.latency.at(launch.setting, len(launch.requests))
        right = rng.random(len(launch.requests)) < task.accuracy[launch.setting]
        return seconds, Finished(launch.id, seconds, tuple(map(Result, launch.requests, right.tolist())))

    return report(simulate(WordsScheduler(task.latency), requests, execute))
