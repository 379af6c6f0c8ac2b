"""The tokens scheduler: batches by Algorithm 1, gamma by the rate rule for short queues and by the planner for long ones.

A pure state machine (see pliant/protocol.py). Whatever can no longer be answered in time is dropped the moment that this
becomes certain, so the caller hears of it while it still matters. Durations measured on the device come back with each
result; their ratio to the profile corrects every later prediction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Action, Answer, Arrived, Drop, Event, Failed, Finished, Launch, Request, Woke
from pliant.tokens.artifact import RateRule
from pliant.tokens.batching import Batch, BatchingConfig, Queue
from pliant.tokens.plan import DROP, PlannedBatch, plan, planned_batch


@dataclass(frozen=True, slots=True)
class TokensConfig:
    """What the scheduler knows before the first request."""

    latency: LatencyTable  # settings are gammas
    accuracy: Mapping[str, Mapping[int, float]]  # task -> gamma -> share answered correctly
    rule: RateRule
    gammas: tuple[int, ...]  # the gammas it may use, a subset of the latency table's; (0,) is the PetS baseline
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    short_queue: int = 3  # beta: below this many batches the rate rule decides (published: 5; LOG.md says why 3)
    exact_queue: int = 8  # up to this many batches the planner is exact, beyond it buckets utility
    bucket: float = 0.01  # share of the greatest possible utility per bucket
    rate_window: float = 1.0  # seconds over which the arrival rate is counted
    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    max_waiting: int = 2048  # requests; more are dropped as "full"
    attempts: int = 2  # launches a request may be part of before a worker's failure drops it
    restart_pause: float = 1.0  # seconds before a failed restart is tried again


@dataclass(slots=True)
class _Running:
    launch: Launch
    requests: tuple[Request, ...]
    expected: float  # seconds by the profile


class TokensScheduler:
    """See the module's head. `workers` devices, numbered from 0, all free at the start."""

    def __init__(self, config: TokensConfig, workers: int = 1) -> None:
        self._config = config
        self._accuracy = {task: _row(accuracy, config.gammas) for task, accuracy in config.accuracy.items()}
        self._seconds_GN = LatencyTable(
            config.gammas, config.latency.batches, tuple(config.latency.row(g) for g in config.gammas)
        ).dense(config.batching.most)
        self._fastest = float(self._seconds_GN[:, 1].min())
        self._rule_index = {gamma: index for index, gamma in enumerate(config.gammas)}
        self._queue = Queue(config.batching)
        self._workers = workers
        self._free = list(range(workers))
        self._running: dict[int, _Running] = {}
        self._broken: list[tuple[float, int]] = []  # (when to restart, worker)
        self._tries: dict[int, int] = {}  # of requests that a failed launch gave back
        self._arrivals: deque[float] = deque()
        self._slowdown = 1.0
        self._launches = 0

    def add_task(self, name: str, accuracy: Mapping[int, float]) -> None:
        """Accept a further task from now on, or replace what is known of one."""
        self._accuracy[name] = _row(accuracy, self._config.gammas)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def batches_waiting(self) -> int:
        return self._queue.count

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case Arrived(request):
                actions = self._arrive(request, now)
            case Finished():
                actions = self._finish(event)
            case Failed():
                actions = self._fail(event, now)
            case Woke():
                actions = []
        actions += [Drop(request, "late") for request in self._queue.expire(lambda d: now >= self._last_start(d))]
        actions += self._restart(now)
        while self._free and len(self._queue):
            actions += self._dispatch(now)
        if self._tries:
            self._forget(actions)
        return actions

    def _forget(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Drop):
                self._tries.pop(action.request, None)

    def wake_at(self) -> float | None:
        deadline = self._queue.first_deadline()
        times = [at for at, _ in self._broken]
        if deadline is not None:
            times.append(self._last_start(deadline))
        return min(times, default=None)

    def _last_start(self, deadline: float) -> float:
        """When even the fastest run of one request would be late."""
        return deadline - self._fastest * self._slowdown

    def _arrive(self, request: Request, now: float) -> list[Action]:
        if request.task not in self._accuracy:
            raise InputError("task", request.task, f"one of {', '.join(self._accuracy)}")
        self._arrivals.append(now)
        self._forget_arrivals(now)
        if len(self._queue) >= self._config.max_waiting:
            return [Drop(request.id, "full")]
        inner = request.arrival + (1 - self._config.margin) * (request.deadline - request.arrival)
        self._queue.add(replace(request, deadline=min(request.deadline, inner)))
        return []

    def _finish(self, event: Finished) -> list[Action]:
        running = self._running.pop(event.launch)
        self._free.append(running.launch.worker)
        if running.launch.kind != "run":
            return []
        for request in running.requests:
            self._tries.pop(request.id, None)
        ratio = min(max(event.seconds / running.expected, 0.25), 4.0)
        self._slowdown += 0.1 * (ratio - self._slowdown)
        return [Answer(request.id, event.launch) for request in running.requests]

    def _fail(self, event: Failed, now: float) -> list[Action]:
        """The worker restarts; its requests wait again unless they failed too often."""
        running = self._running.pop(event.launch)
        pause = 0.0 if running.launch.kind == "run" else self._config.restart_pause
        self._broken.append((now + pause, running.launch.worker))
        actions: list[Action] = []
        for request in running.requests:
            self._tries[request.id] = self._tries.get(request.id, 0) + 1
            if self._tries[request.id] < self._config.attempts and now < self._last_start(request.deadline):
                self._queue.add(request)
            else:
                actions.append(Drop(request.id, "failed"))
        return actions

    def _restart(self, now: float) -> list[Action]:
        due = [worker for at, worker in self._broken if at <= now]
        self._broken = [(at, worker) for at, worker in self._broken if at > now]
        return [self._launch(Launch(self._launches, worker, kind="restart"), (), 0.0) for worker in due]

    def _dispatch(self, now: float) -> list[Action]:
        """Launch one batch on a free worker, without those of its requests that would be late; they are dropped."""
        batch, index = self._choose(now)
        requests = self._queue.take(batch)
        served, late = self._in_time(requests, index, now)
        actions: list[Action] = [Drop(request.id, "late") for request in late]
        if served:
            seconds = float(self._seconds_GN[index, len(served)])
            launch = Launch(self._launches, self._free.pop(0), tuple(r.id for r in served), self._config.gammas[index])
            actions.append(self._launch(launch, tuple(served), seconds))
        return actions

    def _launch(self, launch: Launch, requests: tuple[Request, ...], expected: float) -> Launch:
        self._launches += 1
        self._running[launch.id] = _Running(launch, requests, expected)
        return launch

    def _in_time(self, requests: list[Request], index: int, now: float) -> tuple[list[Request], list[Request]]:
        """Split by whether the whole batch, without the late ones, ends by their deadline."""
        served = sorted(requests, key=lambda r: r.deadline)
        while served and now + self._seconds(index, len(served)) > served[0].deadline:
            served.pop(0)
        kept = {request.id for request in served}
        return [r for r in requests if r.id in kept], [r for r in requests if r.id not in kept]

    def _seconds(self, index: int, size: int) -> float:
        return float(self._seconds_GN[index, size]) * self._slowdown

    def _choose(self, now: float) -> tuple[Batch, int]:
        """The batch to run next and the index of its gamma."""
        batches = self._queue.batches
        if len(batches) < self._config.short_queue:
            index = self._rule(now)
            if self._all_in_time(batches, index, now):
                return batches[0], index
        views = [self._view(batch) for batch in batches]
        bucket = self._config.bucket if len(batches) > self._config.exact_queue else 0.0
        chosen = plan(views, self._seconds_GN * self._slowdown, now, bucket, self._workers).choices
        first = next((i for i, choice in enumerate(chosen) if choice != DROP), None)
        return (batches[0], self._rescue(batches[0], now)) if first is None else (batches[first], chosen[first])

    def _rescue(self, batch: Batch, now: float) -> int:
        """Nothing earns as it stands: the gamma at which most of the batch is in time once the others are left out."""
        requests = list(batch.requests.values())
        served = [len(self._in_time(requests, index, now)[0]) for index in range(len(self._config.gammas))]
        return int(np.lexsort([-self._seconds_GN[:, len(requests)], np.array(served)])[-1])

    def _rule(self, now: float) -> int:
        """The rate rule's gamma, or the nearest one allowed, for the arrival rate per worker of the last window."""
        self._forget_arrivals(now)
        rate = len(self._arrivals) / self._config.rate_window / self._workers
        gamma = self._config.rule.gamma(rate * self._slowdown)
        if gamma not in self._rule_index:
            gamma = min(self._rule_index, key=lambda g: abs(g - gamma))
        return self._rule_index[gamma]

    def _forget_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0] < now - self._config.rate_window:
            self._arrivals.popleft()

    def _all_in_time(self, batches: list[Batch], index: int, now: float) -> bool:
        """Whether the waiting batches all keep their deadlines when every one runs at this gamma."""
        start = now
        for batch in batches:
            seconds = self._seconds(index, len(batch.requests))
            if start + seconds > batch.earliest:
                return False
            start += seconds / self._workers
        return True

    def _view(self, batch: Batch) -> PlannedBatch:
        if batch.view is None:
            members = list(batch.requests.values())
            deadlines = np.array([r.deadline for r in members])
            value_GN = np.array([r.utility * self._accuracy[r.task] for r in members]).T
            batch.view = planned_batch(deadlines, value_GN)
        return batch.view

    def check(self) -> None:
        """Each worker is free, busy or broken; each request waits or runs; nothing is in two places."""
        self._queue.check()
        busy = [running.launch.worker for running in self._running.values()]
        broken = [worker for _, worker in self._broken]
        assert sorted(self._free + busy + broken) == list(range(self._workers)), "workers"
        running = [r.id for run in self._running.values() for r in run.requests]
        everywhere = running + list(self._queue.ids())
        assert len(set(everywhere)) == len(everywhere), "a request is in two places"
        assert set(self._tries) <= set(everywhere), "tries of a request that is gone"
        assert not (self._free and len(self._queue)), "a worker is free while requests wait"


def _row(accuracy: Mapping[int, float], gammas: tuple[int, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    missing = [gamma for gamma in gammas if gamma not in accuracy]
    if missing:
        raise InputError("accuracy", f"without gamma {missing}", f"given for every gamma of {gammas}")
    return np.array([accuracy[gamma] for gamma in gammas])
