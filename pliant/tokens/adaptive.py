"""The default policy: batches are formed when a device becomes free, and device time has a price.

At that moment, over all waiting requests:

1. The price of a device-second follows from the latest arrivals (price.py).
2. Every kind of request takes the gamma that earns most net of that price. Kinds of the same gamma share batches, by
   deadline. Kinds that no gamma makes worth the price are left for later.
3. The exact planner (plan.py) gives these batches, by deadline, the gammas that earn most net of the price without missing
   deadlines.
4. The first batch of that plan runs.

Where batches are padded to buckets (see latency.py), requests are divided into the batches that take least time together:
33 of them run as 32 and 1 rather than as 64, and what joins a batch fills a bucket.

Device time that the plan leaves unused is worth its price to requests still to come, so a short queue does not take a
slower gamma at their cost.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice, takewhile
from math import exp, floor, inf, log

import numpy as np
from numpy.typing import NDArray

from pliant.fairness import Turn
from pliant.protocol import Request
from pliant.tokens.plan import DROP, PlannedBatch, plan
from pliant.tokens.policy import Decision, Knowledge, PoolState, check_tasks
from pliant.tokens.price import Hull, hull, price

TINY = 1e-9  # slowdown at which anything is in time, and what takes less still earns more a second

Floats = NDArray[np.float64]
Entry = tuple[float, int]
"""Deadline and id of a waiting request."""
Key = tuple[str, int | None, str]
"""Task, step of the utility (None: it is 0) and tenant of a kind of request."""


@dataclass(frozen=True, slots=True)
class AdaptiveConfig:
    """How the default policy forms and prices batches."""

    max_batch: int = 64  # requests
    seconds: float = 0.06  # a batch does not take longer, unless batches that short would waste the device
    waste: float = 0.05  # share of the best throughput that the size of a batch may give up
    horizon: int = 16  # batches planned ahead
    bucket: float = 0.01  # see plan.py; short queues are planned exactly whatever its value
    price_share: float = 0.98  # share of the price that is charged; at all of it marginal kinds would never be planned
    marginal: float = 0.1  # a kind that nets less than this share of its worth is marginal
    window: float = 1.0  # seconds over which arrivals are counted, at most
    spans: float = 2.0  # the same in mean times from arrival to deadline
    pauses: float = (
        0.1  # share of that time that a launch's mean pause counts as, at most: more would forbid all launches
    )
    notable: float = 0.0005  # seconds by which the turnaround must change before seconds are computed again
    max_kinds: int = 64  # above it, kinds without waiting requests and recent arrivals are forgotten
    grain: float = 0.1  # a task's requests whose utilities differ by less than this share may count as one kind


@dataclass(slots=True, eq=False)
class _Kind:
    """Waiting requests of one tenant and one task, of about one utility."""

    tenant: str
    worth_G: Floats  # utility x accuracy per setting
    hull: Hull
    waiting: list[Entry] = field(default_factory=list)  # sorted


class AdaptivePolicy:
    """The default policy (see policy.py). `only` restricts it to some settings, whatever profile it is given later."""

    fair = True

    def __init__(
        self, knowledge: Knowledge, config: AdaptiveConfig | None = None, only: Sequence[int] | None = None
    ) -> None:
        self._config, self._only = config or AdaptiveConfig(), only
        self._requests: dict[int, Request] = {}
        self._kinds: dict[Key, _Kind] = {}
        self._arrivals: deque[tuple[float, Key]] = deque()
        self._counts: Counter[Key] = Counter()
        self._span = inf  # seconds from arrival to deadline, of the latest decision
        self._turnaround = 0.0
        self._set_knowledge(knowledge)

    def _set_knowledge(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge = knowledge if self._only is None else knowledge.only(self._only)
        self._settings = knowledge.latency.settings
        self._profile_GN = knowledge.seconds(self._config.max_batch)
        self._most_G = [knowledge.limits.get(setting, self._config.max_batch) for setting in self._settings]
        self._fastest = float(self._profile_GN[:, 1].min())
        self._accuracy_G = {
            task: np.array([shares[s] for s in self._settings]) for task, shares in knowledge.accuracy.items()
        }
        self._set_turnaround(self._turnaround)

    def _set_turnaround(self, turnaround: float) -> None:
        """Compute all seconds and worths again, with `turnaround` seconds more per launch: a price on small batches."""
        self._turnaround = turnaround
        self._seconds_GN = self._profile_GN.copy()
        self._seconds_GN[:, 1:] += turnaround
        self._size_G = [
            full_size(row[: most + 1], self._config.seconds, self._config.waste)
            for row, most in zip(self._seconds_GN, self._most_G, strict=True)
        ]
        buckets = [size for size in self._knowledge.latency.buckets if size <= self._config.max_batch]
        self._buckets_G = [[size for size in buckets if size < full] + [full] for full in self._size_G]
        self._first_GN = [first_sizes(row, sizes) for row, sizes in zip(self._seconds_GN, self._buckets_G, strict=True)]
        self._sample_G = np.array([row[n] / n for row, n in zip(self._seconds_GN, self._size_G, strict=True)])
        for key, kind in self._kinds.items():
            kind.worth_G, kind.hull = self._worth(key)

    @property
    def knowledge(self) -> Knowledge:
        return self._knowledge

    def learn(self, knowledge: Knowledge) -> None:
        check_tasks(knowledge, (request.task for request in self._requests.values()))
        if self._only is not None:
            knowledge.only(self._only)  # raises before anything is changed
        self._kinds = {key: kind for key, kind in self._kinds.items() if key[0] in knowledge.accuracy}
        self._set_knowledge(knowledge)

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def batches(self) -> int:
        """Number of batches that all waiting requests would make if they were of one kind."""
        return -(-len(self._requests) // self._config.max_batch)

    def add(self, request: Request, now: float, again: bool = False) -> None:
        check_tasks(self._knowledge, (request.task,))
        key = self._key(request)
        if key not in self._kinds:
            self._kinds[key] = _Kind(request.tenant, *self._worth(key))
        if not again:
            self._count(key, now)
        insort(self._kinds[key].waiting, (request.deadline, request.id))
        self._requests[request.id] = request

    def _count(self, key: Key, now: float) -> None:
        self._arrivals.append((now, key))
        self._counts[key] += 1
        self._forget(now)

    @property
    def _window(self) -> float:
        """Seconds over which arrivals are counted: requests that come later have other devices' time."""
        return min(self._config.window, self._config.spans * self._span)

    def _forget(self, now: float) -> None:
        """Forget arrivals before the window, and kinds of which nothing is left where there are too many."""
        while self._arrivals and self._arrivals[0][0] < now - self._window:
            self._counts[self._arrivals.popleft()[1]] -= 1
        if len(self._kinds) > self._config.max_kinds:
            self._counts = +self._counts
            self._kinds = {key: kind for key, kind in self._kinds.items() if kind.waiting or key in self._counts}

    def _key(self, request: Request) -> Key:
        if request.utility <= 0:
            return request.task, None, request.tenant
        return request.task, floor(log(request.utility) / log(1 + self._config.grain) + 0.5), request.tenant

    def _worth(self, key: Key) -> tuple[Floats, Hull]:
        task, step, _ = key
        utility = 0.0 if step is None else exp(step * log(1 + self._config.grain))
        worth_G = utility * self._accuracy_G[task]
        return worth_G, hull(self._sample_G, worth_G)

    def lost(self, worker: int) -> None: ...

    def cancel(self, request: int) -> None:
        cancelled = self._requests.pop(request)
        self._kinds[self._key(cancelled)].waiting.remove((cancelled.deadline, request))

    def expire(self, now: float, slowdown: float) -> list[int]:
        seconds = self._fastest * slowdown
        expired: list[Entry] = []
        for kind in self._kinds.values():
            # Exactly as `wake_at` computes it: otherwise a wake-up could expire nothing and be requested again.
            if kind.waiting and kind.waiting[0][0] - seconds <= now:
                expired += self._take(kind, sum(1 for _ in takewhile(lambda p: p[0] - seconds <= now, kind.waiting)))
        for _, request in expired:
            del self._requests[request]
        return [request for _, request in sorted(expired)]

    @staticmethod
    def _take(kind: _Kind, count: int) -> list[Entry]:
        taken = kind.waiting[:count]
        del kind.waiting[:count]
        return taken

    def wake_at(self, slowdown: float) -> float | None:
        first = min((kind.waiting[0][0] for kind in self._kinds.values() if kind.waiting), default=None)
        return None if first is None else first - self._fastest * slowdown

    def decide(self, pool: PoolState, now: float) -> Decision:
        self._span = pool.span
        turnaround = (pool.turnaround + min(pool.pauses, self._config.pauses * pool.span)) / pool.slowdown
        if abs(turnaround - self._turnaround) > self._config.notable + 0.05 * self._turnaround:
            self._set_turnaround(turnaround)
        seconds_GN = self._seconds_GN * pool.slowdown
        worth = self._price(pool, now)
        batches = self._batches(self._by_setting(worth, pool.turn), now + self._fastest * pool.slowdown)
        if batches:
            planned = [self._planned(batch) for batch in batches]
            charged = worth / pool.slowdown
            chosen = plan(planned, seconds_GN, pool.clocks, self._config.bucket, charged).choices
            first = next((i for i, choice in enumerate(chosen) if choice != DROP), None)
            if first is not None:
                index = chosen[first]
                served = _in_time(batches[first][: self._most_G[index]], seconds_GN[index], now)
                if served:  # Nothing is left where fewer requests were measured to take longer.
                    self._fill(served, index, worth, seconds_GN[index], now, pool)
                    return self._decision(served, index)
        index, served = self._fallback(seconds_GN, now, pool.turn)
        if not served:
            index, served = self._fallback(self._hoped(pool), now, pool.turn)
        if served and pool.turn is not None:
            self._fill(served, index, worth, seconds_GN[index], now, pool)
        return self._decision(served, index) if served else Decision()

    def _hoped(self, pool: PoolState) -> Floats:
        """Return the seconds that launches take if all goes well."""
        hope = pool.slowdown if pool.hope is None else min(pool.hope, pool.slowdown)
        return self._profile_GN * hope + pool.turnaround if hope else self._profile_GN * TINY

    def _waiting(self, turn: Turn) -> list[_Kind]:
        """Return the kinds with waiting requests of these tenants."""
        return [k for k in self._kinds.values() if k.waiting and (turn is None or k.tenant in turn)]

    def _price(self, pool: PoolState, now: float) -> float:
        """Return the price of device time: utility per second of the profile."""
        self._forget(now)
        demand = [(self._kinds[key].hull, count) for key, count in self._counts.items() if key in self._kinds]
        capacity = self._window * len(pool.clocks) / pool.slowdown
        return self._config.price_share * price(demand, capacity)

    def _by_setting(self, worth: float, turn: Turn = None) -> list[tuple[float, int, list[_Kind]]]:
        """Return (what a second nets, setting, kinds) for these tenants' kinds that are worth the price, best first.

        Each kind stands at the setting that earns most net of the price. Marginal kinds, which net next to nothing,
        form batches of their own, so that the planner can leave them out.
        """
        kinds_by_key: dict[tuple[int, bool], list[_Kind]] = {}
        nets: dict[tuple[int, bool], float] = {}
        cost_G = worth * self._sample_G
        for kind in self._waiting(turn):
            net_G = kind.worth_G - cost_G
            best = int(net_G.argmax())
            if net_G[best] > 0:
                key = best, bool(net_G[best] > self._config.marginal * kind.worth_G[best])
                kinds_by_key.setdefault(key, []).append(kind)
                nets[key] = max(nets.get(key, 0.0), float(net_G[best] / self._sample_G[best]))
        ranked = sorted(kinds_by_key, key=lambda key: (nets[key], key), reverse=True)
        return [(nets[key], key[0], kinds_by_key[key]) for key in ranked]

    def _batches(self, ranked: list[tuple[float, int, list[_Kind]]], earliest: float) -> list[list[Entry]]:
        """Return batches of one setting each, by earliest deadline; beyond the horizon only those that net most.

        Requests whose deadlines are before `earliest` are left out.
        """
        batches: list[list[Entry]] = []
        for _, best, kinds in ranked:
            left = self._config.horizon - len(batches)
            entries = list(
                islice(merge(*(_since(kind.waiting, earliest) for kind in kinds)), self._size_G[best] * left)
            )
            while entries and len(batches) < self._config.horizon:
                size = self._first(best, len(entries))
                batches.append(entries[:size])
                del entries[:size]
        return sorted(batches)

    def _first(self, index: int, count: int) -> int:
        """Return how many of `count` requests run first at this setting, so that all of them take least time."""
        return self._first_GN[index][min(count, self._size_G[index])]

    def _planned(self, batch: Sequence[Entry]) -> PlannedBatch:
        """Return what the planner needs of a batch, whose entries are sorted by deadline."""
        requests = [self._requests[request] for _, request in batch]
        worth_NG = np.array([r.utility * self._accuracy_G[r.task] for r in requests])
        earned = np.zeros((len(self._settings), len(batch) + 1))
        earned[:, :-1] = worth_NG[::-1].cumsum(axis=0)[::-1].T
        return PlannedBatch(np.array([deadline for deadline, _ in batch]), earned)

    def _fill(
        self, served: list[Entry], index: int, worth: float, seconds_N: Floats, now: float, pool: PoolState
    ) -> None:
        """Add requests that are worth the little that each costs a batch that runs anyway, while all stay in time.

        Those of the tenants that come first in the pool's order are added first. They fill the largest bucket that they
        can, or what is left of the batch's own, where they cost nothing.
        """
        sizes = [size for size in self._buckets_G[index] if size >= len(served)]
        for size in reversed(sizes):
            joining = self._joining(served, size, index, worth, seconds_N, now, pool) if size > len(served) else []
            if size == sizes[0] or len(served) + len(joining) == size:
                served += joining
                return

    def _joining(
        self,
        served: Sequence[Entry],
        size: int,
        index: int,
        worth: float,
        seconds_N: Floats,
        now: float,
        pool: PoolState,
    ) -> list[Entry]:
        """Return the requests that join a batch if it becomes one of `size`."""
        room, profile_N = size - len(served), self._seconds_GN[index]
        step = float(profile_N[size] - profile_N[len(served)]) / room
        joining = [k for k in self._kinds.values() if k.waiting and self._joins(k, index, worth, step)]
        joining.sort(key=lambda kind: kind.worth_G[index], reverse=True)
        chosen, latest, longest = set(served), served[0][0], seconds_N[: size + 1].max()
        most = seconds_N[len(served)] * pool.prolonged
        others = (p for kind in joining for p in kind.waiting if p not in chosen)
        if pool.order:
            joining.sort(key=lambda kind: pool.order.index(kind.tenant))
            others = (p for p in others if p[0] >= now + longest)  # a flood's first ones are often too late
        added: list[Entry] = []
        for entry in islice(others, room):
            took = seconds_N[len(served) + len(added) + 1]
            if now + took > latest or took > most:
                break
            if entry[0] >= now + longest:
                added.append(entry)
        return added

    def _joins(self, kind: _Kind, index: int, worth: float, step: float) -> bool:
        """Return whether a request in this batch earns no less, net of the price, than at its kind's own best setting."""
        return bool(kind.worth_G[index] - worth * step >= max(0.0, (kind.worth_G - worth * self._sample_G).max()))

    def _decision(self, served: Sequence[Entry], index: int) -> Decision:
        run = []
        for entry in served:
            request = self._requests.pop(entry[1])
            self._kinds[self._key(request)].waiting.remove(entry)
            run.append(request)
        return Decision(tuple(run), self._settings[index], float(self._profile_GN[index, len(run)]))

    def _fallback(self, seconds_GN: Floats, now: float, turn: Turn) -> tuple[int, list[Entry]]:
        """Return setting and requests of the batch that earns most per second, ignoring the price; none if all are late.

        This is for when no waiting request is worth the price, or no planned batch can be in time.
        """
        kinds = sorted(self._waiting(turn), key=self._density, reverse=True)
        entries = list(islice((entry for kind in kinds for entry in kind.waiting), self._config.max_batch))
        best: tuple[float, int, list[Entry]] = (-1.0, 0, [])
        for index, row in enumerate(seconds_GN):
            served = _in_time(entries[: self._first(index, len(entries))], row, now)
            if served:
                requests = [self._requests[request] for _, request in served]
                worth = sum(r.utility * self._accuracy_G[r.task][index] for r in requests)
                best = max(best, (worth / row[len(served)], index, served), key=lambda b: b[0])
        return best[1], best[2]

    def _density(self, kind: _Kind) -> float:
        """Return the most utility that a second of this kind earns."""
        return float((kind.worth_G / self._sample_G).max())

    def ids(self) -> Iterable[int]:
        return self._requests.keys()

    def check(self) -> None:
        """Assert that every waiting request is listed once, in its kind, and that every list is sorted."""
        listed = [entry for kind in self._kinds.values() for entry in kind.waiting]
        assert sorted(request for _, request in listed) == sorted(self._requests)
        assert all(kind.waiting == sorted(kind.waiting) for kind in self._kinds.values())
        assert all(self._requests[request].deadline == deadline for deadline, request in listed)


def _since(waiting: list[Entry], earliest: float) -> list[Entry]:
    """Return those of the sorted requests whose deadlines are not before `earliest`."""
    return waiting if not waiting or waiting[0][0] >= earliest else waiting[bisect_left(waiting, (earliest, -1)) :]


def _in_time(entries: Iterable[Entry], seconds_N: Floats, now: float) -> list[Entry]:
    """Return as many of the requests as one launch can answer in time, those of the latest deadlines; sorted."""
    in_time = sorted(entries)
    while in_time and now + seconds_N[len(in_time)] > in_time[0][0]:
        in_time.pop(0)
    return in_time


def full_size(seconds_N: Floats, longest: float, waste: float) -> int:
    """Return the size of a full batch at one setting: as many requests as `longest` seconds allow, or as avoid much waste.

    `waste`: the share of the best throughput that the size may give up. `seconds_N[n]`: seconds of n requests.
    """
    rate_N = np.arange(1, len(seconds_N)) / seconds_N[1:]
    thrifty = int((rate_N >= (1 - waste) * rate_N.max()).argmax()) + 1
    allowed = max(longest, float(seconds_N[thrifty]))  # what takes no longer costs nothing
    return max(thrifty, int(seconds_N.searchsorted(allowed, side="right")) - 1)


def first_sizes(seconds_N: Floats, sizes: Sequence[int]) -> list[int]:
    """Return for every number of requests up to the last size how many run first, so that all take least time.

    `sizes` ascend. Requests between two of them run as one batch, which takes as long as the larger, or as the smaller
    first and then the rest. The larger batches run first.
    """
    if len(sizes) == 1:
        return list(range(sizes[0] + 1))
    seconds = seconds_N.tolist()
    least, first = seconds[:1], [0]
    for count in range(1, sizes[-1] + 1):
        fewest, best = seconds[count], count
        for size in sizes:
            if size >= count:
                break
            if (taken := seconds[size] + least[count - size]) < fewest or (taken == fewest and best < count):
                fewest, best = taken, size
        least.append(fewest)
        first.append(best)
    return first
