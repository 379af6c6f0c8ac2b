"""Policies side by side in the simulator: the same requests for each, seed by seed, in one table for all four systems.

Nothing has to be trained: pliant/SYSTEM/comparison.py has a profile, whose source it names, and draws what is not known.
Figures say which policy decides better, not what a device of yours would do: for that there is `pliant simulate`.

An own policy is called with what its system knows, and returns
- tokens and bins: an object with `choose(waiting, now)`, or a whole scheduler (`Scheduler` in protocol.py). `choose` is
  called for each device that is free after an event, without what is past its deadline; it returns a setting and the
  requests to run at it, or None to wait for the next event. A request has `task`, `arrival`, `deadline` and `utility`
  (tokens: OTAS's six kinds, due after 0.6 or 1 s, worth 0.01 to 1). What tokens knows: `known.latency.settings` are the
  gammas, `known.at(gamma, n)` the seconds of a batch of n, `known.accuracy[task][gamma]` the share of right answers;
- cascade: a `Candidate` (pliant/cascade/artifact.py): levels, and the gates between them;
- packing: a policy of admission, such as a subclass of `pliant.PackingPolicy`.
A distribution offers one by an entry point of the group `pliant.policies`, which is called `SYSTEM.NAME`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from itertools import count
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pliant import loads
from pliant.errors import InputError, PliantError
from pliant.protocol import Action, Answer, Arrived, Drop, Event, Finished, Launch, Request, Scheduler
from pliant.report import Observation, summarise
from pliant.systems import SYSTEMS

GROUP = "pliant.policies"
MOST_REQUESTS = 1_000_000
Times = NDArray[np.float64]
Figures = dict[str, float]
Own = Callable[[Any], Any]
Play = Callable[[str | Own], Figures]


class Chooser(Protocol):
    """A policy in its shortest form."""

    def choose(self, waiting: Sequence[Request], now: float) -> tuple[int, Sequence[Request]] | None:
        """Return a setting and which of the waiting requests run at it now; `waiting`: the earliest deadline first."""


class Choosing:
    """A scheduler of `workers` devices that never fail, as in the simulator. What is past its deadline is dropped."""

    def __init__(self, policy: Chooser, workers: int = 1) -> None:
        self._policy, self._free, self._ids = policy, list(range(workers)), count()
        self._waiting: dict[int, Request] = {}
        self._running: dict[int, Launch] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return the actions that it causes. Raises `InputError` for a choice of nothing waiting."""
        actions: list[Action] = []
        if isinstance(event, Arrived):
            self._waiting[event.request.id] = event.request
        if isinstance(event, Finished):
            ended = self._running.pop(event.launch)
            self._free.append(ended.worker)
            actions += [Answer(request, ended.id) for request in ended.requests]
        late = [request.id for request in self._waiting.values() if request.deadline <= now]
        actions += [Drop(self._waiting.pop(request).id, "late") for request in late]
        while self._waiting and self._free:
            order = sorted(self._waiting.values(), key=lambda request: (request.deadline, request.id))
            if (chosen := self._policy.choose(order, now)) is None:
                break
            setting, run = chosen
            ids = tuple(request.id for request in run)
            if not ids or len(set(ids)) < len(ids) or not set(ids) <= self._waiting.keys():
                raise InputError("what `choose` returned", ids, "some of the waiting requests, each once, or None")
            self._waiting = {id: request for id, request in self._waiting.items() if id not in set(ids)}
            launch = Launch(next(self._ids), self._free.pop(0), ids, setting)
            self._running[launch.id] = launch
            actions.append(launch)
        return actions

    def wake_at(self) -> float | None:
        return min((request.deadline for request in self._waiting.values()), default=None)

    def check(self) -> None:
        assert not {id for launch in self._running.values() for id in launch.requests} & self._waiting.keys()


def compare(
    policies: Mapping[str, str | Own] | Iterable[str], trace: Any, seeds: int = 5, system: str = "tokens"
) -> Any:
    """Return a pandas data frame, one row a policy and seed; without pandas a list of such rows, which prints as a table.

    `policies`: what a row is called -> a policy's name, or an own one (see the module); or names alone. `trace`: arrival
    times in seconds, or a load as `pliant simulate --load` takes it, of which arrivals alone are read; a load that is
    drawn is another one with each seed. Every seed draws the requests, the same for all policies, and the devices' luck.

    `attainment`: share of all requests answered in time; `utility`: sum over answers in time of utility (by default 1) x
    accuracy, `of_bound` its share of the most that any scheduler could earn (tokens; else NaN); `goodput`: right answers
    in time a second; `p50` and `p99`: seconds to an answer. Raises `InputError`, and `PliantError` where a package that
    a policy or a system needs (scipy, scikit-learn, numba) is not installed.
    """
    if system not in (systems := [each.name for each in SYSTEMS]):
        raise InputError("system", system, f"one of {', '.join(systems)}")
    named = policies if isinstance(policies, Mapping) else {name: name for name in policies}
    resolved = {label: resolve(system, policy) for label, policy in named.items()}
    rows = Rows()
    for seed in range(seeds):
        try:
            play = import_module(f"pliant.{system}.comparison").ground(_arrivals(trace, seed), seed)
            rows += [{"policy": label, "seed": seed, **play(policy)} for label, policy in resolved.items()]
        except ModuleNotFoundError as error:
            brought = "`pip install 'pliant-core[sim]'` brings it"
            raise PliantError(f"this comparison of {system} needs {error.name}: {brought}") from error
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


class Rows(list[dict[str, Any]]):
    """Rows as `pandas.DataFrame` takes them, which print as a table."""

    def __str__(self) -> str:
        shown = [
            list(self[0]),
            *([f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in self),
        ]
        return "\n".join("".join(f"{cell:>12}" for cell in line) for line in shown) if self else ""


def installed(system: str) -> dict[str, Any]:
    """Return the entry points of a system's policies by name, of all distributions that are installed."""
    named = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name.partition(".")[2]: entry for entry in named if entry.name.partition(".")[0] == system}


def resolve(system: str, policy: str | Own) -> str | Own:
    """Return what an installed distribution offers by this name, which goes before one of ours; else the policy itself."""
    entries = installed(system) if isinstance(policy, str) else {}
    return cast(Own, entries[policy].load()) if policy in entries else policy


def described(system: str) -> dict[str, str]:
    """Return what the help of a command says of installed policies, by name."""
    return {name: f"of an installed distribution, {entry.value}" for name, entry in installed(system).items()}


def scheduler(built: Any, workers: int = 1) -> Scheduler:
    """Return an own policy as a scheduler. Raises `InputError` where it has neither `choose` nor `handle`."""
    if hasattr(built, "handle"):
        return cast(Scheduler, built)
    if not hasattr(built, "choose"):
        raise InputError("policy", type(built).__name__, "something with a method choose, or a whole scheduler")
    return Choosing(built, workers)


def _arrivals(trace: Any, seed: int) -> Times:
    if not isinstance(trace, str):
        times: Times = np.sort(np.asarray(trace, float))
        if times.ndim != 1 or not len(times) or not np.isfinite(times).all():
            raise InputError("trace", f"of shape {times.shape}", "seconds of arrival, or such as poisson:400:60")
        return times
    if trace.startswith(loads.TRACE):
        return loads.trace(trace, (), MOST_REQUESTS)[loads.SECONDS]
    kinds = "poisson:RATE:SECONDS, bursty:RATE:SECONDS or trace:FILE"
    return loads.drawn(trace, kinds, MOST_REQUESTS, np.random.default_rng(seed))


def figures(seen: Sequence[Observation], utility: float | None = None, bound: float = float("nan")) -> Figures:
    """Return a row's figures. `utility`: expected, where known; without it answers whose label is unknown count as right."""
    whole = summarise(seen)
    in_time = sum(each.request.utility for each in seen if each.outcome == "unlabelled")  # nothing says what is right
    earned = whole.utility + in_time if utility is None else utility
    last = max(max(each.answered or 0.0, each.request.arrival) for each in seen)
    right = sum(each.outcome in ("accurate", "unlabelled") for each in seen)
    return {
        "requests": whole.requests,
        "attainment": whole.attainment,
        "utility": earned,
        "of_bound": earned / bound,
        "goodput": right / max(last - seen[0].request.arrival, 1e-9),
        "p50": whole.p50,
        "p99": whole.p99,
    }
