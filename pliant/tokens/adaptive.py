"""The default policy: no batch is frozen before a device falls free, and device time has a price.

At that moment, over all that waits: (1) the price of a device-second is found from the arrival rates of the last moments
(price.py); (2) every kind of request takes the gamma that earns most net of that price, and kinds of the same gamma share
batches by deadline; kinds that no gamma makes worth the price step back; (3) the exact planner (plan.py) gives these
batches, by deadline, the gammas that earn most net of the price without missing deadlines; (4) the first of them runs. Time
that the plan leaves over is worth its price to requests still to come, so a short queue is not fattened at their cost.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice, takewhile
from math import exp, floor, log

import numpy as np
from numpy.typing import NDArray

from pliant.protocol import Request
from pliant.tokens.plan import DROP, PlannedBatch, plan
from pliant.tokens.policy import Decision, Fleet, Knowledge, check_tasks
from pliant.tokens.price import Hull, hull, price

Floats = NDArray[np.float64]
Place = tuple[float, int]
"""Deadline and id of a waiting request."""


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    most: int = 64  # requests in a batch
    seconds: float = 0.06  # a batch is not made longer than this, unless small batches waste the device
    waste: float = 0.05  # share of the best throughput that the smallest sensible batch may give away
    horizon: int = 16  # batches planned ahead
    bucket: float = 0.01  # see plan.py; short queues are planned exactly whatever it is
    asked: float = 0.98  # share of the price; at the whole of it kinds at the margin would never be planned
    marginal: float = 0.1  # kinds that net less than this share of their worth are at the margin
    window: float = 1.0  # seconds over which arrivals are counted
    notable: float = 0.0005  # seconds by which the turnaround must change to be reckoned with
    kinds: int = 64  # beyond which those are forgotten of which nothing waits or came of late
    grain: float = 0.1  # requests of a task whose utilities differ by less than this share may count as one kind


@dataclass(slots=True, eq=False)
class _Kind:
    """Waiting requests of one task and about one utility."""

    worth_G: Floats  # utility x accuracy per setting
    hull: Hull
    waiting: list[Place] = field(default_factory=list)  # sorted


class AdaptivePolicy:
    """A policy (see policy.py); `only` restricts it to some of the settings, whatever it learns."""

    def __init__(
        self, knowledge: Knowledge, config: AdaptiveConfig | None = None, only: Sequence[int] | None = None
    ) -> None:
        self._config, self._only = config or AdaptiveConfig(), only
        self._requests: dict[int, Request] = {}
        self._kinds: dict[tuple[str, int | None], _Kind] = {}
        self._arrivals: deque[tuple[float, tuple[str, int | None]]] = deque()
        self._counts: Counter[tuple[str, int | None]] = Counter()
        self._turnaround = 0.0
        self._take_in(knowledge)

    def _take_in(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge = knowledge if self._only is None else knowledge.only(self._only)
        self._settings = knowledge.latency.settings
        self._profile_GN = knowledge.latency.dense(self._config.most)
        self._fastest = float(self._profile_GN[:, 1].min())
        self._accuracy_G = {
            task: np.array([known[s] for s in self._settings]) for task, known in knowledge.accuracy.items()
        }
        self._reckon(self._turnaround)

    def _reckon(self, turnaround: float) -> None:
        """With this many seconds to every launch beyond the profile's: a price on small batches."""
        self._turnaround = turnaround
        self._seconds_GN = self._profile_GN.copy()
        self._seconds_GN[:, 1:] += turnaround
        self._size_G = [_sensible(row, self._config) for row in self._seconds_GN]
        self._sample_G = np.array([row[n] / n for row, n in zip(self._seconds_GN, self._size_G, strict=True)])
        for key, kind in self._kinds.items():
            kind.worth_G, kind.hull = self._appraise(key)

    def learn(self, knowledge: Knowledge) -> None:
        check_tasks(knowledge, (request.task for request in self._requests.values()))
        if self._only is not None:
            knowledge.only(self._only)  # raises before anything has changed
        self._kinds = {key: kind for key, kind in self._kinds.items() if key[0] in knowledge.accuracy}
        self._take_in(knowledge)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def batches(self) -> int:
        """As many as would be formed of all that waits, were all of one kind."""
        return -(-len(self._requests) // self._config.most)

    def add(self, request: Request, now: float, again: bool = False) -> None:
        check_tasks(self._knowledge, (request.task,))
        key = self._key(request)
        if key not in self._kinds:
            self._kinds[key] = _Kind(*self._appraise(key))
        if not again:
            self._count(key, now)
        insort(self._kinds[key].waiting, (request.deadline, request.id))
        self._requests[request.id] = request

    def _count(self, key: tuple[str, int | None], now: float) -> None:
        self._arrivals.append((now, key))
        self._counts[key] += 1
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Arrivals before the window; and kinds of which nothing is left, when there are many."""
        while self._arrivals and self._arrivals[0][0] < now - self._config.window:
            self._counts[self._arrivals.popleft()[1]] -= 1
        if len(self._kinds) > self._config.kinds:
            self._counts = +self._counts
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.waiting or key in self._counts}

    def _key(self, request: Request) -> tuple[str, int | None]:
        if request.utility <= 0:
            return request.task, None
        return request.task, floor(log(request.utility) / log(1 + self._config.grain) + 0.5)

    def _appraise(self, key: tuple[str, int | None]) -> tuple[Floats, Hull]:
        task, step = key
        utility = 0.0 if step is None else exp(step * log(1 + self._config.grain))
        worth_G = utility * self._accuracy_G[task]
        return worth_G, hull(self._sample_G, worth_G)

    def lost(self, worker: int) -> None: ...

    def expire(self, now: float, slowdown: float) -> list[int]:
        least = self._fastest * slowdown
        gone: list[Place] = []
        for kind in self._kinds.values():
            # As `wake_at` computes it, to the last bit: else a wake could find nothing to take and be asked for again.
            if kind.waiting and kind.waiting[0][0] - least <= now:
                gone += self._take(kind, sum(1 for _ in takewhile(lambda p: p[0] - least <= now, kind.waiting)))
        for _, request in gone:
            del self._requests[request]
        return [request for _, request in sorted(gone)]

    @staticmethod
    def _take(kind: _Kind, count: int) -> list[Place]:
        taken = kind.waiting[:count]
        del kind.waiting[:count]
        return taken

    def wake_at(self, slowdown: float) -> float | None:
        first = min((kind.waiting[0][0] for kind in self._kinds.values() if kind.waiting), default=None)
        return None if first is None else first - self._fastest * slowdown

    def decide(self, fleet: Fleet, now: float) -> Decision:
        if abs(fleet.turnaround - self._turnaround) > self._config.notable:
            self._reckon(fleet.turnaround)
        seconds_GN = self._seconds_GN * fleet.slowdown
        worth = self._price(fleet, now)
        batches = self._batches(self._by_setting(worth))
        if batches:
            views = [self._view(batch) for batch in batches]
            asked = worth / fleet.slowdown
            chosen = plan(views, seconds_GN, fleet.clocks, self._config.bucket, asked).choices
            first = next((i for i, choice in enumerate(chosen) if choice != DROP), None)
            if first is not None:
                index = chosen[first]
                served = _in_time(batches[first], seconds_GN[index], now)
                if served:  # none is left where fewer requests were measured to take longer
                    self._fill(served, index, worth, seconds_GN[index], now)
                    return self._decision(served, index)
        return self._scraps(seconds_GN, now)

    def _price(self, fleet: Fleet, now: float) -> float:
        """Utility per second of the profile."""
        self._forget(now)
        demand = [(self._kinds[key].hull, count) for key, count in self._counts.items() if key in self._kinds]
        capacity = self._config.window * len(fleet.clocks) / fleet.slowdown
        return self._config.asked * price(demand, capacity)

    def _by_setting(self, worth: float) -> list[tuple[float, int, list[_Kind]]]:
        """Kinds that wait and are worth their price, by the setting that earns most net of it; with what a second nets.

        Kinds at the margin, which net next to nothing, form batches of their own: the planner can leave them out.
        """
        found: dict[tuple[int, bool], list[_Kind]] = {}
        nets: dict[tuple[int, bool], float] = {}
        cost_G = worth * self._sample_G
        for kind in self._kinds.values():
            if kind.waiting:
                net_G = kind.worth_G - cost_G
                best = int(net_G.argmax())
                if net_G[best] > 0:
                    key = best, bool(net_G[best] > self._config.marginal * kind.worth_G[best])
                    found.setdefault(key, []).append(kind)
                    nets[key] = max(nets.get(key, 0.0), float(net_G[best] / self._sample_G[best]))
        ranked = sorted(found, key=lambda key: (nets[key], key), reverse=True)
        return [(nets[key], key[0], found[key]) for key in ranked]

    def _batches(self, found: list[tuple[float, int, list[_Kind]]]) -> list[list[Place]]:
        """Batches of one setting each, by earliest deadline; those that net most where they are more than the horizon."""
        made: list[list[Place]] = []
        for _, best, kinds in found:
            size, left = self._size_G[best], self._config.horizon - len(made)
            places = list(islice(merge(*(kind.waiting for kind in kinds)), size * left))
            made += [places[start : start + size] for start in range(0, len(places), size)]
        return sorted(made)

    def _view(self, batch: Sequence[Place]) -> PlannedBatch:
        """Deadlines are sorted already."""
        requests = [self._requests[request] for _, request in batch]
        worth_NG = np.array([r.utility * self._accuracy_G[r.task] for r in requests])
        earned = np.zeros((len(self._settings), len(batch) + 1))
        earned[:, :-1] = worth_NG[::-1].cumsum(axis=0)[::-1].T
        return PlannedBatch(np.array([deadline for deadline, _ in batch]), earned)

    def _fill(self, served: list[Place], index: int, worth: float, seconds_N: Floats, now: float) -> None:
        """Add what is worth the little that one more costs a batch that runs anyway, as long as all stay in time."""
        size, profile_N = self._size_G[index], self._seconds_GN[index]
        if (room := size - len(served)) <= 0:
            return
        step = float(profile_N[size] - profile_N[len(served)]) / room
        able = [k for k in self._kinds.values() if k.waiting and self._joins(k, index, worth, step)]
        able.sort(key=lambda kind: kind.worth_G[index], reverse=True)
        chosen, latest, longest = set(served), served[0][0], seconds_N[: size + 1].max()
        for place in islice((p for kind in able for p in kind.waiting if p not in chosen), room):
            if now + seconds_N[len(served) + 1] > latest:
                return
            if place[0] >= now + longest:
                served.append(place)

    def _joins(self, kind: _Kind, index: int, worth: float, step: float) -> bool:
        """Whether one more in this batch earns no less, net of the price, than in a batch at the kind's own best setting."""
        return bool(kind.worth_G[index] - worth * step >= max(0.0, (kind.worth_G - worth * self._sample_G).max()))

    def _decision(self, served: Sequence[Place], index: int) -> Decision:
        run = []
        for place in served:
            request = self._requests.pop(place[1])
            self._kinds[self._key(request)].waiting.remove(place)
            run.append(request)
        return Decision(tuple(run), self._settings[index], float(self._profile_GN[index, len(run)]))

    def _scraps(self, seconds_GN: Floats, now: float) -> Decision:
        """Nothing that waits is worth its price, or no batch can be in time: what earns most a second first."""
        kinds = sorted((kind for kind in self._kinds.values() if kind.waiting), key=self._density, reverse=True)
        places = list(islice((place for kind in kinds for place in kind.waiting), self._config.most))
        best: tuple[float, int, list[Place]] = (-1.0, 0, [])
        for index, row in enumerate(seconds_GN):
            served = _in_time(places[: self._size_G[index]], row, now)
            if served:
                requests = [self._requests[request] for _, request in served]
                worth = sum(r.utility * self._accuracy_G[r.task][index] for r in requests)
                best = max(best, (worth / row[len(served)], index, served), key=lambda b: b[0])
        return self._decision(best[2], best[1]) if best[2] else Decision()

    def _density(self, kind: _Kind) -> float:
        """The most that a second of this kind earns."""
        return float((kind.worth_G / self._sample_G).max())

    def ids(self) -> Iterable[int]:
        return self._requests.keys()

    def check(self) -> None:
        """Every waiting request stands in the list of its kind, once, and every list is sorted."""
        listed = [place for kind in self._kinds.values() for place in kind.waiting]
        assert sorted(request for _, request in listed) == sorted(self._requests)
        assert all(kind.waiting == sorted(kind.waiting) for kind in self._kinds.values())
        assert all(self._requests[request].deadline == deadline for deadline, request in listed)


def _in_time(places: Iterable[Place], seconds_N: Floats, now: float) -> list[Place]:
    """As many as one run can answer in time, those with the latest deadlines; sorted."""
    kept = sorted(places)
    while kept and now + seconds_N[len(kept)] > kept[0][0]:
        kept.pop(0)
    return kept


def _sensible(seconds_N: Floats, config: AdaptiveConfig) -> int:
    """How many requests a batch takes at one setting: as many as `seconds` allow, but no fewer than waste little."""
    rate_N = np.arange(1, len(seconds_N)) / seconds_N[1:]
    thrifty = int((rate_N >= (1 - config.waste) * rate_N.max()).argmax()) + 1
    return max(thrifty, int(seconds_N.searchsorted(config.seconds, side="right")) - 1, 1)
