"""Upper bounds on the expected utility that any scheduler can earn on given arrivals.

The bound is the optimum of the fluid linear programme over (kind of request, gamma): requests may be divided and
preempted, each costs the least seconds per sample of any batch, and W devices are one device of speed W. Every schedule
of whole batches is a solution of it, so its optimum is a bound.

It needs no solver. The concave hull of (seconds, utility) over the gammas turns each kind into steps: amounts of work
of falling utility per second, inside time windows. What can be worked off is a polymatroid, so greed is optimal: take
the steps by descending utility per second. The k-th adds F(k) - F(k-1) seconds, where F(k) is the most work of the
first k steps that fits, which earliest deadline first attains (Glover's greedy matching, 1967).

Utilities are expected ones: a lucky run can earn more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

MAX_KINDS = 256
"""Each kind costs up to one sweep over all arrivals per gamma, so loads of more kinds are refused."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The optimum of a relaxation: utility, device-seconds spent, and how many requests are served at which gamma."""

    utility: float
    seconds: float
    served: Mapping[RequestKind, Mapping[int, float]]  # kind -> gamma -> requests


@dataclass(frozen=True, slots=True)
class Devices:
    """What work costs: `workers` devices with one latency table, and batches of at most `max_batch` requests."""

    latency: LatencyTable
    accuracy: Accuracy  # task -> gamma -> share answered correctly
    workers: int = 1
    max_batch: int = 64


@dataclass(frozen=True, slots=True)
class _Step:
    """More time for a request of one kind: from the hull's gamma before (or from not being served) to this one."""

    kind: int
    gamma: int
    seconds: float  # more than before
    utility: float  # more than before

    @property
    def density(self) -> float:
        """Utility per second."""
        return self.utility / self.seconds


def fluid(requests: Sequence[Request], devices: Devices, width: float = 0.05) -> Bound:
    """Return the bound with arrivals gathered into bins of `width` seconds.

    Requests of one bin with equal time to their deadline may be worked on from the first one's arrival to the last
    one's deadline. That window contains each request's own, so this remains an upper bound, and it narrows when bins
    are halved, down to the optimum of a scheduler that knows all arrivals and may divide and preempt. Raises
    `InputError` for a width that is not above 0.
    """
    if not width > 0:
        raise InputError("width", width, "above 0 seconds")
    index: dict[tuple[str, float, float], int] = {}  # times to deadlines are rounded to microseconds
    keys = ((r.task, round(r.deadline - r.arrival, 6), r.utility) for r in requests)
    kind_N = np.fromiter((index.setdefault(key, len(index)) for key in keys), dtype=np.intp)
    if len(index) > MAX_KINDS:
        raise InputError("kinds of request (task, time to deadline, utility)", len(index), f"at most {MAX_KINDS}")
    if not index:
        return Bound(0.0, 0.0, {})
    kinds = [RequestKind(*key) for key in index]
    # All kinds' steps by descending density; a kind's own steps stay in the order of its hull.
    steps = [step for number, kind in enumerate(kinds) for step in _hull(number, kind, devices)]
    steps.sort(key=lambda step: -step.density)
    taken = _taken(requests, kinds, kind_N, steps, devices.workers, width)
    served: dict[RequestKind, dict[int, float]] = {kind: {} for kind in kinds}
    last: dict[int, int] = {}  # kind -> gamma of its step before
    for step, seconds in zip(steps, taken, strict=True):
        # Requests that reach a step but not the next one of their kind are served at its gamma.
        reached, amounts = seconds / step.seconds, served[kinds[step.kind]]
        if step.kind in last:
            amounts[last[step.kind]] = max(amounts[last[step.kind]] - reached, 0.0)
        amounts[step.gamma], last[step.kind] = reached, step.gamma
    utility = sum(step.density * seconds for step, seconds in zip(steps, taken, strict=True))
    return Bound(float(utility), float(sum(taken)), served)


def _hull(number: int, kind: RequestKind, devices: Devices) -> list[_Step]:
    """Return the concave hull of (seconds, utility) over "not served" and the gammas, as steps of falling density.

    A request costs the least seconds at a gamma in any batch that ends within its time.
    """
    shares = devices.accuracy.get(kind.task)
    if shares is None:
        raise InputError("task", kind.task, f"one of {', '.join(devices.accuracy)}")
    sizes = np.arange(1, devices.max_batch + 1)
    points = []  # what earns more also takes longer, or it would have been steeper before
    for gamma, seconds_N in zip(devices.latency.settings, devices.latency.dense(devices.max_batch)[:, 1:], strict=True):
        possible = seconds_N <= kind.deadline + 1e-6  # deadlines of kinds are rounded to microseconds
        if gamma in shares and possible.any():
            points.append((float((seconds_N / sizes)[possible].min()), kind.utility * shares[gamma], gamma))
    steps: list[_Step] = []
    at = (0.0, 0.0)
    while points := [p for p in points if p[1] > at[1]]:
        seconds, utility, gamma = max(points, key=lambda p: ((p[1] - at[1]) / (p[0] - at[0]), p[0]))
        steps.append(_Step(number, gamma, seconds - at[0], utility - at[1]))
        at = (seconds, utility)
    return steps


def _taken(
    requests: Sequence[Request],
    kinds: Sequence[RequestKind],
    kind_N: NDArray[np.intp],
    steps: Sequence[_Step],
    workers: int,
    width: float,
) -> list[float]:
    """Return the device-seconds that each step adds to those before it, with requests gathered into J windows."""
    arrival_N, deadline_N = (np.array([getattr(r, name) for r in requests]) for name in ("arrival", "deadline"))
    spans = sorted({kind.deadline for kind in kinds})
    span_N = np.array([spans.index(kind.deadline) for kind in kinds])[kind_N]
    _, window_N = np.unique(np.floor(arrival_N / width) * len(spans) + span_N, return_inverse=True)
    windows = int(window_N.max()) + 1
    release_J, deadline_J = np.full(windows, np.inf), np.full(windows, -np.inf)
    np.minimum.at(release_J, window_N, arrival_N)
    np.maximum.at(deadline_J, window_N, deadline_N)
    count_JK = np.bincount(window_N * len(kinds) + kind_N, minlength=windows * len(kinds)).reshape(windows, len(kinds))
    order = np.argsort(release_J, kind="stable")
    release_J, deadline_J, count_JK = release_J[order], deadline_J[order], count_JK[order].astype(float)
    before_J = np.maximum.accumulate(np.concatenate([[-np.inf], deadline_J[:-1]]))
    length = float(np.maximum(deadline_J - np.maximum(release_J, before_J), 0.0).sum())  # seconds in any window
    room, demand_J, work = workers * length * (1 - 1e-12), np.zeros(windows), [0.0]
    release, deadline = release_J.tolist(), deadline_J.tolist()
    for step in steps:
        if work[-1] < room:  # once no time is left no further sweep is needed
            demand_J += count_JK[:, step.kind] * step.seconds
            work.append(max(work[-1], _most_work(release, deadline, demand_J.tolist(), workers)))
        else:
            work.append(work[-1])
    return [after - before for before, after in pairwise(work)]


def _most_work(release: Sequence[float], deadline: Sequence[float], seconds: Sequence[float], workers: int) -> float:
    """Return the most device-seconds of the demand that fit between release and deadline, by earliest deadline first.

    Windows are sorted by release; the devices count as one that works `workers` times as fast.
    """
    waiting: list[tuple[float, float]] = []  # (deadline, seconds left on that one device)
    done, now = 0.0, 0.0
    for begin, end, demanded in zip((*release, np.inf), (*deadline, np.inf), (*seconds, 0.0), strict=True):
        while waiting and now < begin:
            due, left = heappop(waiting)
            spent = min(left, begin - now, due - now)
            if spent <= 0.0:
                continue  # its deadline has passed
            done, now = done + spent, now + spent
            if spent < left and now < due:
                heappush(waiting, (due, left - spent))
        now = begin
        if demanded:
            heappush(waiting, (end, demanded / workers))
    return done * workers
