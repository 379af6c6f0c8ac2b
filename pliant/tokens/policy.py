"""What a tokens scheduler knows, what a policy decides, and the interface of all policies.

A policy owns the waiting requests and says what a free worker does next. TokensScheduler keeps account of workers and
launches. The default and the baselines differ in the policy alone, so comparing them compares decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.fairness import Turn
from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.artifact import Profile, RateRule, Task


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

    @property
    def batches(self) -> int:
        """Number of waiting batches."""

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
