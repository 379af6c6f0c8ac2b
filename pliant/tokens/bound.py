"""Upper bounds on the expected utility that any scheduler can earn on given arrivals: how far from the possible it is.

The fluid linear programme over (kind of request, gamma): requests may be divided and preempted, each costs the least
seconds per sample of any batch, W devices are one device of speed W. Every schedule of whole batches is a solution of it, so
its optimum is a bound. Needs no solver: replacing gammas by the steps of the concave hull of (seconds, utility) turns the
programme into choosing amounts of work of different utility per second, each inside its time window. What can be worked
off is a polymatroid, so greed is optimal: take the steps by descending utility per second; the k-th adds F(k) - F(k-1)
seconds, F(k) being the most work that the first k steps can find time for, which earliest deadline first attains
(Glover's greedy matching, 1967). Knows no scheduler; draws nothing. Expected utility: a lucky run can earn more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError
from pliant.latency import LatencyTable
from pliant.protocol import Request
from pliant.workload import RequestKind

Floats = NDArray[np.float64]
Accuracy = Mapping[str, Mapping[int, float]]

MOST_KINDS = 256
"""Each kind costs up to one sweep over all arrivals per gamma; loads whose every request is of its own kind are refused."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The optimum of a relaxation: its utility, the device-seconds it spends, and how many requests it serves how.

    From `fluid_rate` all three are per second.
    """

    utility: float
    seconds: float
    served: Mapping[RequestKind, Mapping[int, float]]  # kind -> gamma -> requests


@dataclass(frozen=True, slots=True)
class Devices:
    """What work costs: `workers` devices with one latency table, batches of at most `most` requests."""

    latency: LatencyTable
    accuracy: Accuracy  # task -> gamma -> share answered correctly
    workers: int = 1
    most: int = 64


@dataclass(frozen=True, slots=True)
class _Step:
    """Giving a request of one kind more time: from the hull's gamma before (or nothing) to this one."""

    kind: int
    gamma: int
    seconds: float  # more than before
    utility: float  # more than before

    @property
    def density(self) -> float:
        return self.utility / self.seconds


@dataclass(frozen=True, slots=True)
class _Windows:
    """Requests gathered into J windows, by ascending release: each can be worked on between release and deadline."""

    release: Floats  # [J] seconds
    deadline: Floats  # [J]
    count_JK: Floats  # requests of each kind


def fluid_rate(rates: Mapping[RequestKind, float], devices: Devices) -> Bound:
    """The stationary programme: what a lasting stream of these requests per second earns at most, per second.

    Bursts and single deadlines are averaged away (a kind's deadline only rules out batches that take longer), so for
    given arrivals `fluid` is tighter.
    """
    kinds = list(rates)
    left, taken = float(devices.workers), []
    for step in (steps := _steps(kinds, devices)):
        taken.append(min(left, rates[kinds[step.kind]] * step.seconds))
        left -= taken[-1]
    return _bound(kinds, steps, taken)


def fluid(requests: Sequence[Request], devices: Devices, width: float = 0.05) -> Bound:
    """The bound with arrivals gathered into bins of `width` seconds.

    Requests of one bin with equal time to their deadline may be worked on from the first one's arrival to the last one's
    deadline, a window that contains each request's own: hence still an upper bound, at the edges of the bins too, and one
    that narrows when bins are halved. Work of one window is not tied to bins otherwise.
    """
    if not width > 0:
        raise InputError("width", width, "above 0 seconds")
    return _bounded(requests, devices, width)


def clairvoyant(requests: Sequence[Request], devices: Devices) -> Bound:
    """The bound with each request's own arrival and deadline: the limit of `fluid` for narrow bins, at its cost.

    It is the exact optimum for someone who knows all arrivals and may divide and preempt. It is not the best schedule of
    whole batches, which may earn less: that must wait for a batch to gather, and cannot stop a launch.
    """
    return _bounded(requests, devices, 0.0)


def _bounded(requests: Sequence[Request], devices: Devices, width: float) -> Bound:
    kinds, kind_N = _kinds(requests)
    if not kinds:
        return Bound(0.0, 0.0, {})
    arrival_N, deadline_N = (np.array([getattr(r, name) for r in requests]) for name in ("arrival", "deadline"))
    windows = _windows(arrival_N, deadline_N, kind_N, kinds, width)
    steps = _steps(kinds, devices)
    return _bound(kinds, steps, _amounts(windows, steps, devices.workers))


def _kinds(requests: Iterable[Request]) -> tuple[list[RequestKind], NDArray[np.intp]]:
    """The kinds there are, and the index of each request's; times to deadlines are told apart by microseconds."""
    index: dict[tuple[str, float, float], int] = {}
    keys = ((r.task, round(r.deadline - r.arrival, 6), r.utility) for r in requests)
    found = np.fromiter((index.setdefault(key, len(index)) for key in keys), dtype=np.intp)
    if len(index) > MOST_KINDS:
        raise InputError("kinds of request (task, time to deadline, utility)", len(index), f"at most {MOST_KINDS}")
    return [RequestKind(*key) for key in index], found


def _windows(
    arrival_N: Floats, deadline_N: Floats, kind_N: NDArray[np.intp], kinds: Sequence[RequestKind], width: float
) -> _Windows:
    spans = sorted({kind.deadline for kind in kinds})
    span_N = np.array([spans.index(kind.deadline) for kind in kinds])[kind_N]
    bin_N = np.floor(arrival_N / width) if width else np.arange(len(arrival_N))
    _, window_N = np.unique(bin_N * len(spans) + span_N, return_inverse=True)
    many = int(window_N.max()) + 1
    release, deadline = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(release, window_N, arrival_N)
    np.maximum.at(deadline, window_N, deadline_N)
    count = np.bincount(window_N * len(kinds) + kind_N, minlength=many * len(kinds)).reshape(many, len(kinds))
    order = np.argsort(release, kind="stable")
    return _Windows(release[order], deadline[order], count[order].astype(float))


def _steps(kinds: Sequence[RequestKind], devices: Devices) -> list[_Step]:
    """All kinds' steps by descending density; a kind's own steps are in the order of its hull."""
    made = [step for index, kind in enumerate(kinds) for step in _hull(index, kind, devices)]
    return sorted(made, key=lambda step: -step.density)


def _hull(index: int, kind: RequestKind, devices: Devices) -> list[_Step]:
    """The concave hull of (seconds, utility) over "not served" and the gammas, as steps of falling density."""
    points = _points(kind, devices)  # those that earn more also take longer, or they would have been steeper before
    steps: list[_Step] = []
    at = (0.0, 0.0)
    while points := [p for p in points if p[1] > at[1]]:
        seconds, utility, gamma = max(points, key=lambda p: ((p[1] - at[1]) / (p[0] - at[0]), p[0]))
        steps.append(_Step(index, gamma, seconds - at[0], utility - at[1]))
        at = (seconds, utility)
    return steps


def _points(kind: RequestKind, devices: Devices) -> list[tuple[float, float, int]]:
    """Per gamma the least seconds a request costs in any batch that ends within its time, and what it earns."""
    known = devices.accuracy.get(kind.task)
    if known is None:
        raise InputError("task", kind.task, f"one of {', '.join(devices.accuracy)}")
    sizes = np.arange(1, devices.most + 1)
    points = []
    for gamma, seconds_N in zip(devices.latency.settings, devices.latency.dense(devices.most)[:, 1:], strict=True):
        possible = seconds_N <= kind.deadline + 1e-6  # kinds are told apart by microseconds
        if gamma in known and possible.any():
            points.append((float((seconds_N / sizes)[possible].min()), kind.utility * known[gamma], gamma))
    return points


def _amounts(windows: _Windows, steps: Sequence[_Step], workers: int) -> list[float]:
    """Device-seconds that each step adds to what those before it found time for."""
    release, deadline = windows.release.tolist(), windows.deadline.tolist()
    room = workers * _length(windows) * (1 - 1e-12)
    demand_J = np.zeros(len(release))
    found = [0.0]
    for step in steps:
        if found[-1] < room:  # once no time is left the sweeps can end
            demand_J += windows.count_JK[:, step.kind] * step.seconds
            found.append(max(found[-1], _most_work(release, deadline, demand_J.tolist(), workers)))
        else:
            found.append(found[-1])
    return [after - before for before, after in pairwise(found)]


def _length(windows: _Windows) -> float:
    """Seconds that lie in any window."""
    before = np.maximum.accumulate(np.concatenate([[-np.inf], windows.deadline[:-1]]))
    return float(np.maximum(windows.deadline - np.maximum(windows.release, before), 0.0).sum())


def _most_work(release: Sequence[float], deadline: Sequence[float], seconds: Sequence[float], workers: int) -> float:
    """The most device-seconds of all that is asked for which fit between release and deadline: earliest deadline first.

    Windows by ascending release; the devices count as one that works `workers` times as fast.
    """
    waiting: list[tuple[float, float]] = []  # (deadline, seconds left on that one device)
    done, now = 0.0, 0.0
    for begin, end, asked in zip((*release, np.inf), (*deadline, np.inf), (*seconds, 0.0), strict=True):
        while waiting and now < begin:
            due, left = heappop(waiting)
            spent = min(left, begin - now, due - now)
            if spent <= 0.0:
                continue  # too late for this one
            done, now = done + spent, now + spent
            if spent < left and now < due:
                heappush(waiting, (due, left - spent))
        now = begin
        if asked:
            heappush(waiting, (end, asked / workers))
    return done * workers


def _bound(kinds: Sequence[RequestKind], steps: Sequence[_Step], taken: Sequence[float]) -> Bound:
    """Requests that reached a step but not the next one of their kind are served at its gamma."""
    served: dict[RequestKind, dict[int, float]] = {kind: {} for kind in kinds}
    last: dict[int, int] = {}  # kind -> gamma of its step before
    for step, seconds in zip(steps, taken, strict=True):
        reached, mine = seconds / step.seconds, served[kinds[step.kind]]
        if step.kind in last:
            mine[last[step.kind]] = max(mine[last[step.kind]] - reached, 0.0)
        mine[step.gamma], last[step.kind] = reached, step.gamma
    utility = sum(step.density * seconds for step, seconds in zip(steps, taken, strict=True))
    return Bound(float(utility), float(sum(taken)), served)
