"""What a tokens scheduler knows, what a policy decides, and the one interface behind which all policies stand.

A policy owns the requests that wait and says what a free worker does next; TokensScheduler keeps the books of workers and
launches around it. Default and baselines differ in nothing else, so a comparison compares decisions alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.tokens.artifact import RateRule


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Latencies and accuracies per setting: a gamma, or for `infaas` the number of a variant, cheapest first."""

    latency: LatencyTable
    accuracy: Mapping[str, Mapping[int, float]]  # task -> setting -> share answered correctly
    rule: RateRule  # from the arrival rate to a gamma (OTAS, Algorithm 3)
    loading: Mapping[int, float] = field(default_factory=dict)  # seconds to load a variant (infaas)

    def __post_init__(self) -> None:
        for task, known in self.accuracy.items():
            lacking = [setting for setting in self.latency.settings if setting not in known]
            if lacking:
                raise InputError(f"accuracy of task {task}", f"without gamma {lacking}", "given for every gamma")

    def only(self, settings: Sequence[int]) -> Knowledge:
        """The same restricted to some settings. Raises `InputError` for one that is not known."""
        chosen = tuple(sorted(settings))
        rows = tuple(self.latency.row(setting) for setting in chosen)
        accuracy = {task: {s: known[s] for s in chosen} for task, known in self.accuracy.items()}
        return Knowledge(LatencyTable(chosen, self.latency.batches, rows), accuracy, self.rule, self.loading)

    def plain(self) -> dict[str, Any]:
        """As the facts of a `Changed` event: JSON values alone."""
        table, rule = self.latency, self.rule
        return {
            "latency": {
                "settings": list(table.settings),
                "batches": list(table.batches),
                "seconds": [list(row) for row in table.seconds],
            },
            "accuracy": {task: [[s, share] for s, share in known.items()] for task, known in self.accuracy.items()},
            "rule": {"below": list(rule.below), "gammas": list(rule.gammas)},
            "loading": [[setting, seconds] for setting, seconds in self.loading.items()],
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Knowledge:
        """Raises `InputError` for facts that `plain` did not give."""
        try:
            table, rule = plain["latency"], plain["rule"]
            rows = tuple(tuple(row) for row in table["seconds"])
            latency = LatencyTable(tuple(table["settings"]), tuple(table["batches"]), rows)
            accuracy = {task: dict(known) for task, known in plain["accuracy"].items()}
            loading = dict(plain["loading"])
            return cls(latency, accuracy, RateRule(tuple(rule["below"]), tuple(rule["gammas"])), loading)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError("facts", repr(plain)[:80], f"as Knowledge.plain gives them ({error!r})") from None


@dataclass(frozen=True, slots=True)
class Fleet:
    """Which worker is to be given something, when every worker falls free (it first), and how slow they are.

    `slowdown` is measured over predicted seconds, smoothed; policies multiply their predictions by it. `turnaround`:
    seconds that a launch takes beyond those of the device, on the way there and back; nothing in a simulation.
    """

    worker: int
    clocks: tuple[float, ...]
    slowdown: float = 1.0
    turnaround: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """What the worker does: run requests at a setting (`seconds` by the profile), or load a variant, or neither.

    Requests in `run` and `drop` have left the policy's queue. Nothing at all means: not before `wake_at`.
    """

    run: tuple[Request, ...] = ()
    setting: int = 0
    seconds: float = 0.0
    drop: tuple[int, ...] = ()
    load: bool = False

    @property
    def idle(self) -> bool:
        return not (self.run or self.drop or self.load)


def check_tasks(knowledge: Knowledge, tasks: Iterable[str]) -> None:
    """Raises `InputError` for a task of which nothing is known."""
    for task in tasks:
        if task not in knowledge.accuracy:
            raise InputError("task", task, f"one of {', '.join(knowledge.accuracy)}")


class Policy(Protocol):
    """Pure like the scheduler: time is an argument. Every added request leaves by `expire` or by a decision."""

    def __len__(self) -> int:
        """Requests that wait."""

    @property
    def batches(self) -> int:
        """Batches that wait."""

    def add(self, request: Request, now: float, again: bool = False) -> None:
        """A request arrived, or (`again`) its launch failed and it waits once more."""

    def expire(self, now: float, slowdown: float) -> list[int]:
        """Take out the requests that can no longer be in time, earliest deadline first."""

    def wake_at(self, slowdown: float) -> float | None:
        """When `expire` will next have something to take out, or an idle decision should be taken again."""

    def decide(self, fleet: Fleet, now: float) -> Decision: ...

    def lost(self, worker: int) -> None:
        """The worker is restarted: whatever it had loaded beyond what it starts with is gone."""

    def learn(self, knowledge: Knowledge) -> None:
        """Go by this from now on. Raises `InputError`, changing nothing, where it lacks a task or setting in use."""

    def ids(self) -> Iterable[int]: ...

    def check(self) -> None:
        """AssertionError if the queue's books do not balance."""
