"""The default policy: batches are formed when a device becomes free, and device time has a price.

At that moment, over all waiting requests:

1. The price of a device-second follows from the latest arrivals (`price`).
2. Every kind of request takes the gamma that earns most net of that price. Kinds of the same gamma share batches, by
   deadline. Kinds that no gamma makes worth the price are left for later.
3. An exact planner (`plan`) gives these batches, by deadline, the gammas that earn most net of the price without missing
   deadlines.
4. The first batch of that plan runs.

Where batches are padded to buckets (see latency.py), requests are divided into the batches that take least time together:
33 of them run as 32 and 1 rather than as 64, and what joins a batch fills a bucket.

Device time that the plan leaves unused is worth its price to requests still to come, so a short queue does not take a
slower gamma at their cost.

The price is the dual price of the fluid problem over (kind of request, gamma): every kind climbs the concave hull of
(seconds, utility x accuracy) over the gammas, and the steps of all kinds are taken by falling utility per second until the
devices are full (fractional knapsack, Dantzig 1957).

The planner starts batches one after the other by earliest deadline, each on the device that becomes free first. After each
batch it keeps every (clock, utility) pair that no other pair beats in both: a Pareto frontier. The published dynamic
programme (OTAS, Algorithm 2, in otas.py) keeps one pair per (batch, gamma) and can discard the start of the best plan. A
request counts only if its batch ends by its own deadline.

Shape suffixes: G gammas, N requests, S steps of a hull or states of a plan, W devices.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from math import exp, floor, inf, log

import numpy as np
from numpy.typing import NDArray

from pliant.fairness import Turn
from pliant.protocol import Request
from pliant.tokens.scheduler import Decision, Knowledge, PoolState, check_tasks

DROP = -1
"""A plan's choice for a batch that does not run."""
TINY = 1e-9  # slowdown at which anything is in time, and what takes less still earns more a second

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
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
    bucket: float = 0.01  # see `plan`; short queues are planned exactly whatever its value
    price_share: float = 0.95  # share of the price that is charged; at all of it kinds at the margin would never run
    marginal: float = 0.2  # a kind that nets less than this share of its worth is marginal
    window: float = 1.0  # seconds over which arrivals are counted, at most
    spans: float = 2.0  # the same in mean times from arrival to deadline
    pauses: float = (
        0.1  # share of that time that a launch's mean pause counts as, at most: more would forbid all launches
    )
    notable: float = 0.0005  # seconds by which the turnaround must change before seconds are computed again
    max_kinds: int = 64  # above it, kinds without waiting requests and recent arrivals are forgotten
    grain: float = 0.1  # a task's requests whose utilities differ by less than this share may count as one kind
    attainment: bool = (
        False  # whether an answer in time counts 1; what utility x accuracy adds only decides among equals
    )
    tie: float = 0.1  # what it adds at most, with u / (1 + u) for a utility of u


ATTAINMENT = AdaptiveConfig(attainment=True, price_share=0.98, spans=0.5)
"""The default's other objective: as many answers in time as can be, then utility x accuracy. All kinds then earn about the
same, and a price of the latest moments earned most of both (docs/log/tokens.md)."""


@dataclass(frozen=True, slots=True)
class Hull:
    """Steps from not being served up to the best gamma: seconds and worth that each adds, worth per second falling."""

    seconds_S: Floats
    worth_S: Floats


@dataclass(slots=True, eq=False)
class _Kind:
    """Waiting requests of one tenant and one task, of about one utility."""

    tenant: str
    worth_G: Floats  # utility x accuracy per setting
    hull: Hull
    waiting: list[Entry] = field(default_factory=list)  # sorted


class AdaptivePolicy:
    """The default policy (see scheduler.py). `only` restricts it to some settings, whatever profile it is given later."""

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

    def add(self, request: Request, now: float, again: bool = False) -> None:
        check_tasks(self._knowledge, (request.task,))
        key = self._key(request)
        if key not in self._kinds:
            self._kinds[key] = _Kind(request.tenant, *self._worth(key))
        if not again:
            self._arrivals.append((now, key))
            self._counts[key] += 1
            self._forget(now)
        insort(self._kinds[key].waiting, (request.deadline, request.id))
        self._requests[request.id] = request

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
        worth_G = self._earned(task, 0.0 if step is None else exp(step * log(1 + self._config.grain)))
        return worth_G, hull(self._sample_G, worth_G)

    def _earned(self, task: str, utility: float) -> Floats:
        """Return what an answer in time earns at each setting, by the objective."""
        if not self._config.attainment:
            return utility * self._accuracy_G[task]
        return 1 + self._config.tie * utility / (1 + utility) * self._accuracy_G[task]

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
                count = sum(1 for _ in takewhile(lambda entry: entry[0] - seconds <= now, kind.waiting))
                expired += kind.waiting[:count]
                del kind.waiting[:count]
        for _, request in expired:
            del self._requests[request]
        return [request for _, request in sorted(expired)]

    def wake_at(self, slowdown: float) -> float | None:
        first = [kind.waiting[0][0] for kind in self._kinds.values() if kind.waiting]  # faster than without a list
        return min(first) - self._fastest * slowdown if first else None

    def decide(self, pool: PoolState, now: float) -> Decision:
        self._span = pool.span
        turnaround = (pool.turnaround + min(pool.pauses, self._config.pauses * pool.span)) / pool.slowdown
        if abs(turnaround - self._turnaround) > self._config.notable + 0.05 * self._turnaround:
            self._set_turnaround(turnaround)
        seconds_GN = self._seconds_GN * pool.slowdown
        worth = self._price(pool, now)
        batches = self._batches(worth, pool.turn, now + self._fastest * pool.slowdown)
        if batches:
            planned = []
            place: dict[tuple[str, float], int] = {}  # of the worth of requests: many have the same
            places = [
                [place.setdefault((r.task, r.utility), len(place)) for r in (self._requests[id] for _, id in batch)]
                for batch in batches
            ]
            worth_KG = np.array([self._earned(*worth) for worth in place])
            for batch, place_N in zip(batches, places, strict=True):
                earned = np.zeros((len(self._settings), len(batch) + 1))
                earned[:, :-1] = worth_KG[place_N][::-1].cumsum(axis=0)[::-1].T
                planned.append(PlannedBatch(np.array([deadline for deadline, _ in batch]), earned))
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
        if not served:  # as if all goes well
            hope = pool.slowdown if pool.hope is None else min(pool.hope, pool.slowdown)
            hoped_GN = self._profile_GN * hope + pool.turnaround if hope else self._profile_GN * TINY
            index, served = self._fallback(hoped_GN, now, pool.turn)
        if served and pool.turn is not None:
            self._fill(served, index, worth, seconds_GN[index], now, pool)
        return self._decision(served, index) if served else Decision()

    def _waiting(self, turn: Turn) -> list[_Kind]:
        """Return the kinds with waiting requests of these tenants."""
        return [k for k in self._kinds.values() if k.waiting and (turn is None or k.tenant in turn)]

    def _price(self, pool: PoolState, now: float) -> float:
        """Return the price of device time: utility per second of the profile."""
        self._forget(now)
        demand = [(self._kinds[key].hull, count) for key, count in self._counts.items() if key in self._kinds]
        capacity = self._window * len(pool.clocks) / pool.slowdown
        return self._config.price_share * price(demand, capacity)

    def _batches(self, worth: float, turn: Turn, earliest: float) -> list[list[Entry]]:
        """Return batches of one setting each of these tenants' kinds that are worth the price, by earliest deadline.

        Each kind stands at the setting that earns most net of the price. Marginal kinds, which net next to nothing, form
        batches of their own, so that the planner can leave them out. Beyond the horizon only those are there that net most
        in a second. Requests whose deadlines are before `earliest` are left out.
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
        batches: list[list[Entry]] = []
        for best, marginal in sorted(kinds_by_key, key=lambda key: (nets[key], key), reverse=True):
            in_time = [_since(kind.waiting, earliest) for kind in kinds_by_key[best, marginal]]
            entries = sorted(chain.from_iterable(in_time))[: self._size_G[best] * (self._config.horizon - len(batches))]
            while entries and len(batches) < self._config.horizon:
                size = self._first(best, len(entries))
                batches.append(entries[:size])
                del entries[:size]
        return sorted(batches)

    def _first(self, index: int, count: int) -> int:
        """Return how many of `count` requests run first at this setting, so that all of them take least time."""
        return self._first_GN[index][min(count, self._size_G[index])]

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
        # A request joins that earns no less here, net of the price, than at its kind's own best setting.
        joining = [
            kind
            for kind in self._kinds.values()
            if kind.waiting
            and kind.worth_G[index] - worth * step >= max(0.0, (kind.worth_G - worth * self._sample_G).max())
        ]
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
        by_seconds = sorted(self._waiting(turn), key=lambda k: float((k.worth_G / self._sample_G).max()), reverse=True)
        entries = list(islice((entry for kind in by_seconds for entry in kind.waiting), self._config.max_batch))
        best: tuple[float, int, list[Entry]] = (-1.0, 0, [])
        for index, row in enumerate(seconds_GN):
            served = _in_time(entries[: self._first(index, len(entries))], row, now)
            if served:
                requests = [self._requests[request] for _, request in served]
                worth = sum(self._earned(r.task, r.utility)[index] for r in requests)
                best = max(best, (worth / row[len(served)], index, served), key=lambda b: b[0])
        return best[1], best[2]

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


def hull(seconds_G: Floats, worth_G: Floats) -> Hull:
    """Return the upper concave hull of (0, 0) and all gammas' (seconds, worth); empty where no gamma is worth anything."""
    at, had = 0.0, 0.0
    steps: list[tuple[float, float]] = []
    while (better := worth_G > had + 1e-12).any():
        # The steepest step; where a slower gamma is as steep, the larger step lies on the same line.
        slope_G = np.where(better, (worth_G - had) / np.maximum(seconds_G - at, 1e-12), -np.inf)
        best = int(slope_G.argmax())
        steps.append((max(float(seconds_G[best]) - at, 1e-12), float(worth_G[best]) - had))
        at, had = float(seconds_G[best]), float(worth_G[best])
    table = np.array(steps).reshape(-1, 2)
    return Hull(table[:, 0], table[:, 1])


def price(demand: Iterable[tuple[Hull, float]], capacity: float) -> float:
    """Return the utility of one more device-second: 0 where the devices can give every request its best gamma.

    `demand`: (hull, requests) of each kind over some time; `capacity`: device-seconds in that time.
    """
    segments = [
        (steps.worth_S / steps.seconds_S, steps.seconds_S * count)
        for steps, count in demand
        if count > 0 and len(steps.seconds_S)
    ]
    if not segments:
        return 0.0
    density_S = np.concatenate([density for density, _ in segments])
    seconds_S = np.concatenate([seconds for _, seconds in segments])
    order = np.argsort(-density_S, kind="stable")
    full = seconds_S[order].cumsum().searchsorted(capacity, side="right")
    return 0.0 if full == len(order) else float(density_S[order[full]])


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """What the planner needs of a batch: one deadline per request, and what each request earns at each gamma."""

    deadlines: Floats  # [n] ascending, seconds on the planner's clock
    earned_after: Floats  # [gammas, n + 1] utility at each gamma if the first i deadlines are missed


def planned_batch(deadlines: Floats, value_GN: Floats) -> PlannedBatch:
    """Return the batch of these deadlines [n] and expected utilities [gammas, n] (utility x accuracy), in any order."""
    order = np.argsort(deadlines, kind="stable")
    earned = np.zeros((value_GN.shape[0], len(order) + 1))
    earned[:, :-1] = np.cumsum(value_GN[:, order[::-1]], axis=1)[:, ::-1]
    return PlannedBatch(deadlines[order], earned)


@dataclass(frozen=True, slots=True)
class Plan:
    """`choices[i]`: index of the gamma of batch i, or DROP; `utility`: what the plan is expected to earn."""

    choices: tuple[int, ...]
    utility: float


def plan(
    batches: Sequence[PlannedBatch],
    seconds_GN: Floats,
    clocks: Sequence[float],
    bucket: float = 0.0,
    price: float = 0.0,
) -> Plan:
    """Return the plan that is worth most among all that start `batches` in the order given (earliest deadline first).

    `seconds_GN[g, n]` are the seconds of n requests at gamma g (above 0); `clocks` says when each device becomes free.
    A plan's worth is its expected utility less `price` (utility per device-second, at least 0) times its device time.
    With price 0 this is the plan that earns most, otherwise one that leaves time to requests still to come where they
    would earn more with it. `bucket` > 0 bounds the frontier to 2 / bucket states: a longer one keeps one state per
    that share of the utility reached so far, so a plan may lose up to that share of the greatest possible utility per
    batch.

    Exact for one device (and bucket 0). For several, states are compared by the sum of their clocks: a heuristic, since
    of two states with equal sums one may have a device free earlier. The utility of a plan is exact in any case.
    """
    clocks_SW = np.sort(np.asarray(clocks, dtype=float))[None]  # of every state, ascending in each row
    total_S, earned_S = clocks_SW.sum(axis=1), np.zeros(1)  # sums of clocks, by which states are compared; utilities
    steps: list[tuple[Indices, Indices]] = []  # for every state after a batch: the state before it, and the choice
    for batch in batches:
        size, states = len(batch.deadlines), len(total_S)
        seconds_G1 = seconds_GN[:, size, None]
        end_GS = clocks_SW[:, 0] + seconds_G1
        missed_GS = batch.deadlines.searchsorted(end_GS.ravel()).reshape(end_GS.shape)
        gain_GS = batch.earned_after.take(missed_GS + np.arange(0, (size + 1) * len(end_GS), size + 1)[:, None])
        # Leaving out a gamma that earns no more than its time is worth loses nothing: without that launch the rest starts
        # no later (list scheduling of independent batches is monotone), so the plan is worth as much without it.
        runs = np.flatnonzero(gain_GS > price * seconds_G1)
        total = np.concatenate([total_S, (total_S + seconds_G1).take(runs)])
        earned = np.concatenate([earned_S, (earned_S + gain_GS).take(runs)])
        kept = _frontier(total, earned, bucket)
        # Row DROP (the states before, unchanged) comes before the rows of the gammas.
        choice_S, parent_S = np.divmod(np.concatenate([np.arange(-states, 0), runs]).take(kept), states)
        clocks_SW = clocks_SW[parent_S]
        clocks_SW[:, 0] += np.append(seconds_G1, 0.0)[choice_S]  # the device that is free first
        if len(clocks) > 1:
            clocks_SW.sort(axis=1)
        total_S, earned_S = total[kept], earned[kept]
        steps.append((parent_S, choice_S))
    state = int((earned_S - price * total_S).argmax())
    utility, choices = float(earned_S[state]), list[int]()
    for parent_S, choice_S in reversed(steps):
        choices.append(int(choice_S[state]))
        state = int(parent_S[state])
    return Plan(tuple(reversed(choices)), utility)


def _frontier(total: Floats, earned: Floats, bucket: float) -> Indices:
    """Return the indices of the states that no other beats in clock and utility, by ascending clock (and so utility).

    Of more than 2 / bucket states the earliest in each bucket of utility is kept, and the one that earns most.
    """
    order = total.argsort(kind="stable")  # the input is several ascending runs, which this sort merges
    top = np.maximum.accumulate(earned.take(order))
    new = np.empty(len(order), dtype=bool)
    new[0] = True
    np.greater(top[1:], top[:-1], out=new[1:])
    kept = order[new]
    last = np.ones(len(kept), dtype=bool)
    np.greater(total[kept[1:]], total[kept[:-1]], out=last[:-1])
    kept = kept[last]  # of states with the same clock the last one earns most
    if bucket and len(kept) * bucket > 2:
        share = np.floor(earned[kept] / (bucket * earned[kept[-1]]))
        thin = np.concatenate([[True], share[1:] > share[:-1]])
        thin[-1] = True
        kept = kept[thin]
    return kept
