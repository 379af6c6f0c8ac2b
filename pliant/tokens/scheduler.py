"""The tokens scheduler: books of workers, launches and failures around a policy that decides what runs.

A pure state machine (see pliant/protocol.py). Durations measured on the device come back with each result; their ratio to
the profile, and the time that launches take beyond them, correct every later prediction. Knows nothing of gammas, batches
or plans: pliant/tokens/policies.py puts a policy in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Action, Answer, Arrived, Changed, Drop, Event, Failed, Finished, Launch, Request, Woke
from pliant.tokens.policy import Decision, Fleet, Knowledge, Policy, check_tasks


@dataclass(frozen=True, slots=True)
class Options:
    """What holds whatever the policy."""

    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    max_waiting: int = 2048  # requests per worker; more are dropped as "full"
    attempts: int = 2  # launches a request may be part of before a worker's failure drops it
    restart_pause: float = 1.0  # seconds before a failed restart is tried again


@dataclass(frozen=True, slots=True)
class _Running:
    launch: Launch
    requests: tuple[Request, ...]
    expected: float  # seconds by the profile
    launched: float
    until: float  # when it should end


class TokensScheduler:
    """See the module's head. `workers` devices, numbered from 0, all free at the start."""

    def __init__(self, policy: Policy, workers: int = 1, options: Options | None = None) -> None:
        self._policy, self._options = policy, options or Options()
        self._workers = workers
        self._free = list(range(workers))
        self._running: dict[int, _Running] = {}
        self._broken: list[tuple[float, int]] = []  # (when to restart, worker)
        self._tries: dict[int, int] = {}  # of requests that a failed launch gave back
        self._slowdown = 1.0
        self._turnaround = 0.0  # seconds of a launch beyond the device's own, smoothed
        self._latency: LatencyTable | None = None  # as last told
        self._launches = 0

    @property
    def waiting(self) -> int:
        return len(self._policy)

    @property
    def batches_waiting(self) -> int:
        return self._policy.batches

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case Arrived(request):
                actions = self._arrive(request, now)
            case Finished():
                actions = self._finish(event, now)
            case Failed():
                actions = self._fail(event, now)
            case Changed(facts):
                self._learn(Knowledge.of(facts))
                actions = []
            case Woke():
                actions = []
        actions += [Drop(request, "late") for request in self._policy.expire(now, self._slowdown)]
        actions += self._restart(now)
        while self._free and len(self._policy):
            decision = self._policy.decide(self._fleet(now), now)
            if decision.idle:
                break
            actions += self._carry_out(decision, now)
        if self._tries:
            self._forget(actions)
        return actions

    def wake_at(self) -> float | None:
        times = [at for at, _ in self._broken]
        if (expiry := self._policy.wake_at(self._slowdown)) is not None:
            times.append(expiry)
        return min(times, default=None)

    def _arrive(self, request: Request, now: float) -> list[Action]:
        inner = request.arrival + (1 - self._options.margin) * (request.deadline - request.arrival)
        if len(self._policy) >= self._options.max_waiting * self._workers:
            return [Drop(request.id, "full")]
        self._policy.add(replace(request, deadline=min(request.deadline, inner)), now)
        return []

    def _learn(self, knowledge: Knowledge) -> None:
        # What runs may fail and wait again, so its tasks are in use too.
        check_tasks(knowledge, (r.task for running in self._running.values() for r in running.requests))
        self._policy.learn(knowledge)
        if knowledge.latency != self._latency:  # what was learnt of the old table says nothing of the new one
            self._slowdown = 1.0
        self._latency = knowledge.latency

    def _fleet(self, now: float) -> Fleet:
        busy = sorted(max(now, running.until) for running in self._running.values() if running.launch.kind == "run")
        return Fleet(self._free[0], (*[now] * len(self._free), *busy), self._slowdown, self._turnaround)

    def _carry_out(self, decision: Decision, now: float) -> list[Action]:
        actions: list[Action] = [Drop(request, "late") for request in decision.drop]
        if decision.run or decision.load:
            ids = tuple(request.id for request in decision.run)
            kind = "load" if decision.load else "run"
            launch = Launch(self._launches, self._free.pop(0), ids, decision.setting, kind)
            actions.append(self._launch(launch, decision.run, decision.seconds, now))
        return actions

    def _launch(self, launch: Launch, requests: tuple[Request, ...], expected: float, now: float) -> Launch:
        self._launches += 1
        until = now + expected * self._slowdown + self._turnaround
        self._running[launch.id] = _Running(launch, requests, expected, now, until)
        return launch

    def _finish(self, event: Finished, now: float) -> list[Action]:
        running = self._running.pop(event.launch)
        self._free.append(running.launch.worker)
        if running.launch.kind != "run":
            return []
        for request in running.requests:
            self._tries.pop(request.id, None)
        ratio = min(max(event.seconds / running.expected, 0.25), 4.0)
        self._slowdown += 0.1 * (ratio - self._slowdown)
        beyond = min(max(now - running.launched - event.seconds, 0.0), 0.1)
        self._turnaround += 0.1 * (beyond - self._turnaround)
        return [Answer(request.id, event.launch) for request in running.requests]

    def _fail(self, event: Failed, now: float) -> list[Action]:
        """The worker restarts; its requests wait again unless they failed too often."""
        running = self._running.pop(event.launch)
        pause = 0.0 if running.launch.kind == "run" else self._options.restart_pause
        self._broken.append((now + pause, running.launch.worker))
        self._policy.lost(running.launch.worker)
        actions: list[Action] = []
        for request in running.requests:
            self._tries[request.id] = self._tries.get(request.id, 0) + 1
            if not self._wait_again(request, now):
                actions.append(Drop(request.id, "failed"))
        return actions

    def _wait_again(self, request: Request, now: float) -> bool:
        """Whether it may; `expire` drops it at once where it is too late."""
        if self._tries[request.id] >= self._options.attempts:
            return False
        try:
            self._policy.add(request, now, again=True)
        except InputError:  # its task has gone since it was launched
            return False
        return True

    def _restart(self, now: float) -> list[Action]:
        due = [worker for at, worker in self._broken if at <= now]
        self._broken = [(at, worker) for at, worker in self._broken if at > now]
        return [self._launch(Launch(self._launches, worker, kind="restart"), (), 0.0, now) for worker in due]

    def _forget(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Drop):
                self._tries.pop(action.request, None)

    def check(self) -> None:
        """Each worker is free, busy or broken; each request waits or runs; nothing is in two places."""
        self._policy.check()
        busy = [running.launch.worker for running in self._running.values()]
        broken = [worker for _, worker in self._broken]
        assert sorted(self._free + busy + broken) == list(range(self._workers)), "workers"
        running = [r.id for run in self._running.values() for r in run.requests]
        everywhere = running + list(self._policy.ids())
        assert len(set(everywhere)) == len(everywhere), "a request is in two places"
        assert set(self._tries) <= set(everywhere), "tries of a request that is gone"
