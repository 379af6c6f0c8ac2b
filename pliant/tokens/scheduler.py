"""The tokens scheduler: books of workers, launches and failures around a policy that decides what runs.

A pure state machine (see pliant/protocol.py) over the books of pliant/devices.py. Knows nothing of gammas, batches or
plans: pliant/tokens/policies.py puts a policy in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pliant.devices import Devices, Running
from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Action, Answer, Arrived, Changed, Drop, Event, Failed, Finished, Request, Woke
from pliant.tokens.policy import Decision, Fleet, Knowledge, Policy, check_tasks


@dataclass(frozen=True, slots=True)
class Options:
    """What holds whatever the policy."""

    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the caller
    max_waiting: int = 2048  # requests per worker; more are dropped as "full"
    attempts: int = 2  # launches a request may be part of before a worker's failure drops it
    restart_pause: float = 1.0  # seconds before a failed restart is tried again


class TokensScheduler:
    """See the module's head. `workers` devices, numbered from 0, all free at the start."""

    def __init__(self, policy: Policy, workers: int = 1, options: Options | None = None) -> None:
        self._policy, self._options = policy, options or Options()
        self._workers = workers
        self._devices: Devices[tuple[Request, ...]] = Devices(workers, self._options.restart_pause)
        self._tries: dict[int, int] = {}  # of requests that a failed launch gave back
        self._latency: LatencyTable | None = None  # as last told

    @property
    def waiting(self) -> int:
        return len(self._policy)

    @property
    def batches_waiting(self) -> int:
        return self._policy.batches

    @property
    def slowdown(self) -> float:
        """Measured over expected seconds, as learnt."""
        return self._devices.slowdown

    @property
    def turnaround(self) -> float:
        """Seconds of a launch beyond the device's own, as learnt."""
        return self._devices.turnaround

    @property
    def running(self) -> list[Running[tuple[Request, ...]]]:
        return self._devices.running

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
        actions += [Drop(request, "late") for request in self._policy.expire(now, self._devices.slowdown)]
        actions += self._devices.restarts((), now)
        while self._devices.free and len(self._policy):
            decision = self._policy.decide(self._fleet(now), now)
            if decision.idle:
                break
            actions += self._carry_out(decision, now)
        if self._tries:
            self._forget(actions)
        return actions

    def wake_at(self) -> float | None:
        times = (self._devices.wake_at(), self._policy.wake_at(self._devices.slowdown))
        return min((at for at in times if at is not None), default=None)

    def _arrive(self, request: Request, now: float) -> list[Action]:
        inner = request.arrival + (1 - self._options.margin) * (request.deadline - request.arrival)
        if len(self._policy) >= self._options.max_waiting * self._workers:
            return [Drop(request.id, "full")]
        self._policy.add(replace(request, deadline=min(request.deadline, inner)), now)
        return []

    def _learn(self, knowledge: Knowledge) -> None:
        # What runs may fail and wait again, so its tasks are in use too.
        check_tasks(knowledge, (r.task for running in self._devices.running for r in running.carried))
        self._policy.learn(knowledge)
        if knowledge.latency != self._latency:  # what was learnt of the old table says nothing of the new one
            self._devices.slowdown = 1.0
        self._latency = knowledge.latency

    def _fleet(self, now: float) -> Fleet:
        devices = self._devices
        clocks = (*[now] * len(devices.free), *devices.busy(now))
        return Fleet(next(iter(devices.free)), clocks, devices.slowdown, devices.turnaround)

    def _carry_out(self, decision: Decision, now: float) -> list[Action]:
        actions: list[Action] = [Drop(request, "late") for request in decision.drop]
        if decision.run or decision.load:
            ids = tuple(request.id for request in decision.run)
            kind = "load" if decision.load else "run"
            worker, expected = next(iter(self._devices.free)), decision.seconds
            actions.append(self._devices.launch(worker, ids, decision.run, expected, now, decision.setting, kind))
        return actions

    def _finish(self, event: Finished, now: float) -> list[Action]:
        running = self._devices.finish(event, now)
        if running.launch.kind != "run":
            return []
        for request in running.carried:
            self._tries.pop(request.id, None)
        return [Answer(request.id, event.launch) for request in running.carried]

    def _fail(self, event: Failed, now: float) -> list[Action]:
        """The worker restarts; its requests wait again unless they failed too often."""
        running = self._devices.fail(event, now)
        self._policy.lost(running.launch.worker)
        actions: list[Action] = []
        for request in running.carried:
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

    def _forget(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Drop):
                self._tries.pop(action.request, None)

    def check(self) -> None:
        """Each worker is free, busy or broken; each request waits or runs; nothing is in two places."""
        self._policy.check()
        self._devices.check()
        running = [r.id for run in self._devices.running for r in run.carried]
        everywhere = running + list(self._policy.ids())
        assert len(set(everywhere)) == len(everywhere), "a request is in two places"
        assert set(self._tries) <= set(everywhere), "tries of a request that is gone"
