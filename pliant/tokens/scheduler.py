"""The tokens scheduler: it keeps account of workers, launches and failures, and a policy decides what runs.

A pure state machine (see pliant/protocol.py) over pliant/devices.py. A policy owns the waiting requests and says what a free
worker does next, by what it knows of latency and accuracy. The default and the baselines (policies.py) differ in the policy
alone, so comparing them compares decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.devices import Devices, Retries, Running
from pliant.errors import InputError
from pliant.fairness import FAIRNESS, Fairness, FairnessConfig, Returns, Turn
from pliant.latency import LatencyTable
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Event,
    Failed,
    Finished,
    Limited,
    Request,
    Woke,
)
from pliant.tokens.artifact import Profile, RateRule, Task

SPAN = 0.02  # weight of the latest request in the mean time from arrival to deadline


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Latencies and accuracies per setting: a gamma, or for `infaas` the index of a variant, cheapest first."""

    latency: LatencyTable
    accuracy: Mapping[str, Mapping[int, float]]  # task -> setting -> share answered correctly
    rule: RateRule  # from the arrival rate to a gamma (OTAS, Algorithm 3)
    loading: Mapping[int, float] = field(default_factory=dict)  # seconds to load a variant (infaas)
    devices: tuple[str, ...] = ()  # the name of each worker's device, such as cuda:1; empty: not said
    lead: float = 0.0  # seconds before a device's expected end at which its next batch is sent to it; 0: at the end
    limits: Mapping[int, int] = field(default_factory=dict)  # setting -> requests that run at once, where memory lacked

    def __post_init__(self) -> None:
        for task, shares in self.accuracy.items():
            lacking = [setting for setting in self.latency.settings if setting not in shares]
            if lacking:
                raise InputError(f"accuracy of task {task}", f"without gamma {lacking}", "given for every gamma")

    def only(self, settings: Sequence[int]) -> Knowledge:
        """Return the same restricted to these settings. Raises `InputError` for an unknown one."""
        latency = self.latency.only(settings)
        accuracy = {task: {s: shares[s] for s in latency.settings} for task, shares in self.accuracy.items()}
        return replace(self, latency=latency, accuracy=accuracy)

    def at(self, setting: int, count: int) -> float:
        """Return the seconds of `count` requests. More than the setting's limit run one part after the other."""
        most = min(self.limits.get(setting, count), count)
        whole, rest = divmod(count, most)
        return whole * self.latency.at(setting, most) + (self.latency.at(setting, rest) if rest else 0.0)

    def seconds(self, up_to: int) -> NDArray[np.float64]:
        """Return an array whose [i, n] is the seconds of n requests at the i-th setting, from 0 to `up_to` requests."""
        if not self.limits:
            return self.latency.dense(up_to)
        table = [[0.0, *(self.at(setting, n) for n in range(1, up_to + 1))] for setting in self.latency.settings]
        return np.asarray(table)

    def plain(self) -> dict[str, Any]:
        """Return it as the facts of a `Changed` event: JSON values only. Limits have an event of their own."""
        table, rule = self.latency, self.rule
        return {
            "latency": {
                "settings": list(table.settings),
                "batches": list(table.batches),
                "seconds": [list(row) for row in table.seconds],
                "buckets": list(table.buckets),
            },
            "accuracy": {task: [[s, share] for s, share in shares.items()] for task, shares in self.accuracy.items()},
            "rule": {"below": list(rule.below), "gammas": list(rule.gammas)},
            "loading": [[setting, seconds] for setting, seconds in self.loading.items()],
            **({"devices": list(self.devices)} if self.devices else {}),
            **({"lead": self.lead} if self.lead else {}),
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Knowledge:
        """Return what `plain` turned into facts. Raises `InputError` for other facts."""
        try:
            table, rule = plain["latency"], plain["rule"]
            rows = tuple(tuple(row) for row in table["seconds"])
            buckets = tuple(table.get("buckets", ()))  # older journals lack them
            latency = LatencyTable(tuple(table["settings"]), tuple(table["batches"]), rows, buckets)
            accuracy = {task: dict(shares) for task, shares in plain["accuracy"].items()}
            loading, devices = dict(plain["loading"]), tuple(plain.get("devices", ()))
            rule, lead = RateRule(tuple(rule["below"]), tuple(rule["gammas"])), float(plain.get("lead", 0.0))
            return cls(latency, accuracy, rule, loading, devices, lead)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError("facts", repr(plain)[:80], f"as Knowledge.plain gives them ({error!r})") from None


def knowledge(profile: Profile, tasks: Sequence[Task]) -> Knowledge:
    """Return what `profile` and `tasks` say, for the gammas that were profiled and that every task was measured at.

    Accuracies are those of the precision that was profiled.
    """
    table, tasks = profile.latency, [task.served_in(profile.precision) for task in tasks]
    latency = table.only([g for g in table.settings if all(g in task.accuracy for task in tasks)])
    return Knowledge(latency, {task.name: dict(task.accuracy) for task in tasks}, profile.rule)


@dataclass(frozen=True, slots=True)
class PoolState:
    """The devices at a decision: the worker to be given work, when every worker becomes free (this one first), how slow
    they are.

    `slowdown`: measured over predicted seconds, smoothed; policies multiply their predictions by it. `turnaround`:
    seconds of a launch beyond those of the device, on the way there and back; 0 in a simulation. `turn`: the tenants
    whose turn it is, and `order`: all that wait, the least served first (see pliant/fairness.py). `hope`: the slowdown at
    which nothing is hopeless that may be in time; None: `slowdown`. `pauses`: mean seconds by which pauses prolong a
    launch. `span`: seconds from arrival to deadline, smoothed. `prolonged`: times its seconds that a launch may take with
    requests of tenants whose turn it is not.
    """

    worker: int
    clocks: tuple[float, ...]
    slowdown: float = 1.0
    turnaround: float = 0.0
    turn: Turn = None
    order: Sequence[str] = ()
    hope: float | None = None
    pauses: float = 0.0
    span: float = inf
    prolonged: float = inf


@dataclass(frozen=True, slots=True)
class Decision:
    """What the worker does next: run requests at a setting (`seconds` by the profile), load a variant, or neither.

    Requests in `run` and `drop` have left the policy's queue. An idle decision holds until `wake_at` or the next event.
    """

    run: tuple[Request, ...] = ()
    setting: int = 0
    seconds: float = 0.0
    drop: tuple[int, ...] = ()
    load: bool = False

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.run or self.drop or self.load)


def check_tasks(knowledge: Knowledge, tasks: Iterable[str]) -> None:
    """Raise `InputError` for a task that the profile does not have."""
    for task in tasks:
        if task not in knowledge.accuracy:
            raise InputError("task", task, f"one of {', '.join(knowledge.accuracy)}")


class Policy(Protocol):
    """A pure state machine, like the scheduler. Every added request leaves by `expire`, `cancel` or a decision."""

    fair: bool
    """Whether it decides by whose turn it is; to the published policies all tenants are the same."""

    @property
    def knowledge(self) -> Knowledge:
        """What it decides by."""

    def __len__(self) -> int:
        """Return the number of waiting requests."""

    def add(self, request: Request, now: float, again: bool = False) -> None:
        """Add a request that arrived, or (`again`) one whose launch failed. Raises `InputError` for an unknown task."""

    def cancel(self, request: int) -> None:
        """Remove a waiting request, whose client has left."""

    def expire(self, now: float, slowdown: float) -> list[int]:
        """Remove the requests that can no longer be in time, and return their ids, earliest deadline first."""

    def wake_at(self, slowdown: float) -> float | None:
        """Return when `expire` will next remove something, or when to call `decide` again; None for neither."""

    def decide(self, pool: PoolState, now: float) -> Decision:
        """Return what the free worker `pool.worker` does next."""

    def lost(self, worker: int) -> None:
        """Note that the worker is restarted, so that whatever it had loaded since its start is gone."""

    def learn(self, knowledge: Knowledge) -> None:
        """Use this profile from now on. Raises `InputError`, changing nothing, where it lacks a task or setting in use."""

    def ids(self) -> Iterable[int]:
        """Return the ids of all waiting requests."""

    def check(self) -> None:
        """Raise `AssertionError` if the queue is inconsistent."""


@dataclass(frozen=True, slots=True)
class Options:
    """Limits that hold whatever the policy."""

    margin: float = 0.15  # share of the time to a deadline that is reserved for the way back to the client
    max_waiting: int = 2048  # waiting requests per worker; more are dropped as "full"
    attempts: int = 2  # failed launches of a request, the last one alone, after which it is dropped
    restart_pause: float = 1.0  # seconds before a failed restart is tried again
    fairness: FairnessConfig = FAIRNESS  # how tenants share the devices, where the policy is fair


class TokensScheduler:
    """`workers` devices, numbered from 0 and all free at the start, under one policy.

    `seen`: what the policy sees of a profile that it is given later.
    """

    def __init__(
        self,
        policy: Policy,
        workers: int = 1,
        options: Options | None = None,
        seen: Callable[[Knowledge], Knowledge] = lambda known: known,
    ) -> None:
        self._policy, self._options, self._seen = policy, options or Options(), seen
        self._workers = workers
        self._devices: Devices[Request] = Devices(workers, self._options.restart_pause)
        self._fairness = Fairness(self._options.fairness)
        self._returns, self._kept = Returns(self._fairness), inf  # until when the last free device is kept for somebody
        self._retries = Retries(self._options.attempts)
        self._latency: LatencyTable | None = None  # of the latest profile
        self._lead = 0.0  # seconds, of the latest profile
        self._limits: dict[int, int] = {}  # setting -> requests that run at once, where a device lacked memory for more
        self._now = 0.0  # of the latest event
        self._span = 0.0  # seconds from arrival to deadline, smoothed; 0 before the first arrival

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._policy)

    @property
    def slowdown(self) -> float:
        """Measured over expected seconds of a launch, smoothed."""
        return self._devices.slowdown

    @property
    def turnaround(self) -> float:
        """Seconds of a launch beyond those of the device, smoothed."""
        return self._devices.turnaround

    @property
    def running(self) -> list[Running[Request]]:
        """The launches that run now."""
        return self._devices.running

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return what is to be done now. A launch's `worker` numbers the devices from 0."""
        devices = self._devices
        match event:
            case Arrived(request):
                actions = self._arrive(request, now)
                self._returns.came(request.id, request.tenant, now)
            case Finished():
                actions = self._finish(event, now)
            case Failed():
                actions = self._fail(event, now)
            case Changed(facts):
                self._learn(Knowledge.of(facts))
                actions = []
            case Limited(setting, batch):
                self._limits[setting] = min(batch, self._limits.get(setting, batch))
                self._policy.learn(replace(self._policy.knowledge, limits=dict(self._limits)))
                actions = []
            case Cancelled(request_id):
                self._retries.forget(request_id)
                if not devices.cancel(request_id):
                    self._policy.cancel(request_id)
                    self._fairness.leave(request_id)
                self._returns.ended(request_id, now)
                actions = []
            case Woke():
                actions = []
        actions += self._drop(self._policy.expire(now, self._hope(now)), "late")
        for action in actions:
            self._returns.ended(action.request, now)  # type: ignore[union-attr]  # nothing is launched yet
        actions += devices.restarts(now)
        while len(self._policy):
            if devices.free:
                worker, begin = next(iter(devices.free)), now
            elif self._lead and (ahead := devices.ahead(now, self._lead)) is not None:
                worker, begin = ahead
            else:
                break
            if self._fairness.contended and len(devices.free) <= 1:
                kept = self._returns.until(now)
                self._kept = inf if kept is None else kept
                if kept is not None:  # the last free device, for somebody who will be back at once
                    break
            decision = self._decide(worker, begin, now)
            if decision.idle:
                break
            actions += self._carry_out(decision, worker, now)
        for action in actions if self._retries else ():
            if isinstance(action, Drop):
                self._retries.forget(action.request)
        self._now = now
        return actions

    def _hope(self, now: float) -> float:
        """Return the slowdown at which nothing is hopeless that may be in time: the least of the latest launches.

        It is 0 where no launch has run or ended for as long as requests have time: then one is tried whatever was learnt,
        so that no belief lasts because it is never tested.
        """
        devices = self._devices
        stale = devices.free and not devices.running and now - devices.ended >= self._span
        return 0.0 if stale else devices.least_slowdown

    def wake_at(self) -> float | None:
        """Return when `Woke` should come if nothing else happens before; None for never."""
        ahead = self._devices.ahead_at(self._now, self._lead) if self._lead and len(self._policy) else None
        kept = self._kept if len(self._policy) and self._devices.free else None
        times = (self._devices.wake_at(), self._policy.wake_at(self._hope(self._now)), ahead, kept)
        return min((at for at in times if at is not None), default=None)

    def _arrive(self, request: Request, now: float) -> list[Action]:
        inner = request.arrival + (1 - self._options.margin) * (request.deadline - request.arrival)
        within = max(inner - request.arrival, 0.0)
        self._span += (within - self._span) * (SPAN if self._span else 1.0)
        surplus = None
        if len(self._policy) >= self._options.max_waiting * self._workers:
            surplus = self._fairness.surplus(*self._tenant(request))
            if surplus is None:
                return [Drop(request.id, "full")]
        utility = request.utility
        if self._policy.fair:
            utility = self._fairness.value(request.tenant, request.weight, utility)
        # Not by `replace`, which takes a tenth of the scheduler's time.
        earlier = min(request.deadline, inner), request.task, utility, request.length, request.setting
        self._add(Request(request.id, request.arrival, *earlier, request.tenant, request.weight), now)
        if surplus is None:
            return []
        self._policy.cancel(surplus)
        return self._drop([surplus], "full")

    def _add(self, request: Request, now: float, again: bool = False) -> None:
        """Raises `InputError` for an unknown task; nothing has changed then."""
        self._policy.add(request, now, again)
        self._fairness.join(request.id, *self._tenant(request))

    def _tenant(self, request: Request) -> tuple[str, float]:
        """Return whose request it is, and with which weight: to a policy that is not fair all are of one tenant."""
        return (request.tenant, request.weight) if self._policy.fair else ("", 1.0)

    def _drop(self, requests: Sequence[int], reason: str) -> list[Action]:
        for request in requests:
            self._fairness.leave(request)
        return [Drop(request, reason) for request in requests]

    def _learn(self, knowledge: Knowledge) -> None:
        if knowledge.devices and len(knowledge.devices) != self._workers:
            raise InputError("devices", ", ".join(knowledge.devices), f"as many as the scheduler has, {self._workers}")
        # A running request may fail and wait again, so its task is in use too.
        check_tasks(knowledge, (r.task for running in self._devices.running for r in running.carried))
        self._policy.learn(replace(self._seen(knowledge), limits=dict(self._limits)))
        if knowledge.latency != self._latency:  # the old table's correction does not hold for the new one
            self._devices.forget()
        self._latency, self._lead = knowledge.latency, knowledge.lead

    def _decide(self, worker: int, begin: float, now: float) -> Decision:
        """Ask the policy about the tenants whose turn it is, and about all if these have nothing that can run.

        The policy decides as at the time `begin`, when the worker begins with its decision.
        """
        clocks = (*[now] * len(self._devices.free), *self._devices.busy(now))
        if not self._fairness.several:
            return self._policy.decide(self._pool_state(worker, clocks, None, now), begin)
        turns = self._fairness.turns()
        decisions = (self._policy.decide(self._pool_state(worker, clocks, turn, now), begin) for turn in turns)
        return next((decision for decision in decisions if not decision.idle), Decision())

    def _pool_state(self, worker: int, clocks: tuple[float, ...], turn: Turn, now: float) -> PoolState:
        devices = self._devices
        order = () if turn is None else self._fairness.order()
        prolonged = inf if turn is None else 1 / self._fairness.share(turn)
        slow, hope = (devices.slowdown, devices.turnaround), self._hope(now)
        return PoolState(worker, clocks, *slow, turn, order, hope, devices.excess, self._span, prolonged)

    def _carry_out(self, decision: Decision, worker: int, now: float) -> list[Action]:
        actions = self._drop(decision.drop, "late")
        if decision.run or decision.load:
            kind = "load" if decision.load else "run"
            run = self._apart(decision.run, now)
            expected = decision.seconds
            if len(run) < len(decision.run) and self._latency is not None:
                expected = self._policy.knowledge.at(decision.setting, len(run))
            launch = self._devices.launch(worker, run, expected, now, decision.setting, kind)
            self._fairness.launch(launch.id, launch.requests, expected)
            self._returns.launched(launch.expected)
            actions.append(launch)
        return actions

    def _apart(self, requests: tuple[Request, ...], now: float) -> tuple[Request, ...]:
        """Return those of the requests that may run together; the others wait again."""
        if not self._retries:
            return requests
        together = set(self._retries.together([request.id for request in requests]))
        if len(together) == len(requests):
            return requests
        for request in requests:
            if request.id not in together:
                self._policy.add(request, now, again=True)
        return tuple(request for request in requests if request.id in together)

    def _finish(self, event: Finished, now: float) -> list[Action]:
        running = self._devices.finish(event, now)
        self._fairness.ended(event.launch, event.seconds)
        if running.launch.kind != "run":
            return []
        if self._retries:
            for request in running.carried:
                self._retries.forget(request.id)
        return [Answer(request.id, event.launch) for request in running.carried]

    def _fail(self, event: Failed, now: float) -> list[Action]:
        """Let the requests wait again, apart, unless they have failed too often; restart the worker if it is lost."""
        running = self._devices.fail(event, now)
        if not running.begun:  # no request of it is to blame
            self._fairness.ended(event.launch, 0.0)
            return [Drop(request.id, "failed") for request in running.carried if not self._wait_again(request, now)]
        self._fairness.ended(event.launch, min(now - running.launched, running.expected))
        lost = self._devices.lost(running.launch.worker)
        if lost:
            self._policy.lost(running.launch.worker)
        alone = len(running.launch.requests) == 1
        given_up = self._retries.failed([request.id for request in running.carried], alone, lost)
        return [
            Drop(request.id, "failed")
            for request in running.carried
            if request.id in given_up or not self._wait_again(request, now)
        ]

    def _wait_again(self, request: Request, now: float) -> bool:
        """Return whether the request waits again. One that is too late is dropped by the next `expire`."""
        try:
            self._add(request, now, again=True)
        except InputError:  # its task was removed after the launch
            return False
        return True

    def check(self) -> None:
        """Assert that workers are accounted for and that each request either waits or runs, in one place."""
        self._policy.check()
        self._devices.check()
        self._fairness.check(list(self._policy.ids()))
        running = [r.id for run in self._devices.running for r in run.carried]
        everywhere = running + list(self._policy.ids())
        assert len(set(everywhere)) == len(everywhere), "a request is in two places"
        self._retries.check(set(everywhere))
