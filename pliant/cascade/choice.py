"""Which batch a free worker of the cascade takes next: of the most value a second, or the one with the most urgent request.

The seconds of a batch follow from its longest text and its size (`BatchTimes`), and all its requests must be answered
in time. For a given longest length and size the best batch is exact: the most valuable of the requests that are short
enough and not too urgent. Lengths are tried between every two measured ones, at the longest text that waits there, and
at the length of the most urgent request.

Requests that are not expected to be in time are left aside; where nothing else waits, one of them is tried that would be in
time were the launch as fast as the fastest of late, or that waits while the device has nothing else to do.

Shape suffixes: W waiting requests, most valuable first; B batch sizes from 1 on; S lengths to try.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.knowledge import Knowledge, Path
from pliant.devices import Devices
from pliant.fairness import Fairness, Returns, Turn
from pliant.latency import LatencyTable
from pliant.protocol import Request

POOL = 64  # requests of one model that are considered for a batch
CALM = 0.25  # of the mean time left: up to so much waiting work, urgency decides
SHORT = 0.95  # of a batch's value a second that a shorter one for tenants who are ahead of others must keep,
SHORTER = 0.5  # and one between two launches of a tenant who is behind and back soon

Floats = NDArray[np.float64]
Lengths = NDArray[np.integer]


class Waiting(Protocol):
    """A request as batching sees it: deadline in seconds, length in tokens, and the expected value of its answer."""

    @property
    def deadline(self) -> float: ...

    @property
    def length(self) -> int: ...

    @property
    def value(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one text: `alone` in a batch, and its `least` share of a batch, at the best size."""

    alone: float
    least: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch to launch."""

    chosen: tuple[int, ...]  # indices into the waiting requests
    seconds: float  # on the device, by the profile
    density: float  # value a second, up to the answer


class BatchTimes:
    """The seconds of batches of one model, by its profile."""

    def __init__(self, latency: LatencyTable) -> None:
        self.lengths = np.asarray(latency.settings)
        self.most = latency.batches[-1]
        self._seconds: Floats = latency.dense(self.most)[:, 1:]
        self._costs: dict[int, Cost] = {}

    def batch_seconds(self, longest: int) -> Floats:
        """Return the seconds [B] of batches of 1 to `most` texts, padded to `longest` tokens."""
        seconds_B: Floats = self.table(np.array([longest]))[0]
        return seconds_B

    def table(self, longest_S: Lengths) -> Floats:
        """Return the same for several lengths [S, B]: linear between measured ones, in proportion beyond the last."""
        last = len(self.lengths) - 1
        high_S = np.minimum(np.searchsorted(self.lengths, longest_S), last)
        low_S = np.maximum(high_S - 1, 0)
        width_S = np.maximum(self.lengths[high_S] - self.lengths[low_S], 1)
        share_S = np.where(high_S == low_S, 1.0, np.minimum((longest_S - self.lengths[low_S]) / width_S, 1.0))[:, None]
        between_SB = (1 - share_S) * self._seconds[low_S] + share_S * self._seconds[high_S]
        beyond: Floats = between_SB * np.maximum(longest_S / float(self.lengths[-1]), 1.0)[:, None]
        return beyond

    def cost(self, length: int) -> Cost:
        """Return the cost of one text of this length, which is computed once a length."""
        if length not in self._costs:
            seconds_B = self.batch_seconds(length)
            least = float((seconds_B / np.arange(1, len(seconds_B) + 1)).min())
            self._costs[length] = Cost(float(seconds_B[0]), least)
        return self._costs[length]

    def alone(self, length: int) -> float:
        """Return the seconds of one text in a batch of its own."""
        return self.cost(length).alone

    def least(self, length: int) -> float:
        """Return the device's seconds for one text in a batch of the best size."""
        return self.cost(length).least


def densest(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float = 1.0,
    beyond: float = 0.0,
    excess: float = 0.0,
) -> Batch | None:
    """Return the batch of the most value a second; None if no batch is in time.

    `slowdown` and `beyond` (seconds) correct the profile, as learnt by pliant/devices.py; `excess`: the mean seconds by
    which pauses prolong a launch, which are part of its price alone.
    """
    if len(waiting) == 1:
        return _alone(waiting[0], times, now, slowdown, beyond, excess)
    return _best(waiting, times, now, slowdown, beyond, excess, first=False)


def urgent(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float = 1.0,
    beyond: float = 0.0,
    excess: float = 0.0,
) -> Batch | None:
    """Return the densest batch with the first of `waiting`; None if that one can no longer be in time."""
    if len(waiting) == 1:
        return _alone(waiting[0], times, now, slowdown, beyond, excess)
    return _best(waiting, times, now, slowdown, beyond, excess, first=True)


def _alone(item: Waiting, times: BatchTimes, now: float, slowdown: float, beyond: float, excess: float) -> Batch | None:
    """Return the batch of one request, as most queues hold; None if it is too late."""
    seconds = times.alone(item.length)
    took = seconds * slowdown + beyond
    return Batch((0,), seconds, item.value / (took + excess)) if item.deadline >= now + took else None


def _best(
    waiting: Sequence[Waiting],
    times: BatchTimes,
    now: float,
    slowdown: float,
    beyond: float,
    excess: float,
    first: bool,
) -> Batch | None:
    if not waiting:
        return None
    length_W, deadline_W, value_W, order_W = _columns(waiting, first)
    longest_S = _steps(length_W, times)
    if first:  # a longer text between the same measured lengths might make it late
        longest_S = np.append(longest_S[longest_S > length_W[0]], length_W[0])
    seconds_SB = times.table(longest_S)[:, : len(waiting)]
    took_SB = seconds_SB * slowdown + beyond
    size_B = np.arange(1, took_SB.shape[1] + 1, dtype=np.int16)
    fits_SBW = (deadline_W >= (now + took_SB)[:, :, None]) & (length_W <= longest_S[:, None, None])
    rank_SBW = fits_SBW.cumsum(axis=2, dtype=np.int16)
    taken_SBW = fits_SBW & (rank_SBW <= size_B[:, None])
    allowed_SB = (rank_SBW[:, :, -1] >= size_B) & (fits_SBW[:, :, 0] | (not first))
    density_SB = np.where(allowed_SB, (taken_SBW @ value_W) / (took_SB + excess), -np.inf)
    s, b = divmod(int(density_SB.argmax()), density_SB.shape[1])
    if not allowed_SB[s, b]:
        return None
    # Its longest text may be shorter than the length that was tried.
    taken_W = taken_SBW[s, b]
    seconds = float(times.batch_seconds(int(length_W[taken_W].max()))[b])
    density = float(value_W[taken_W].sum()) / (seconds * slowdown + beyond + excess)
    return Batch(tuple(sorted(order_W[taken_W].tolist())), seconds, density)


def _columns(waiting: Sequence[Waiting], first: bool) -> tuple[Lengths, Floats, Floats, Lengths]:
    """Return lengths, deadlines, values and indices [W], most valuable first. `first` keeps the first one in front."""
    value_W = np.array([item.value for item in waiting])
    order_W = np.argsort(-value_W, kind="stable")
    if first:
        order_W = np.concatenate([[0], order_W[order_W != 0]])
    length_W = np.array([item.length for item in waiting])[order_W]
    deadline_W = np.array([item.deadline for item in waiting])[order_W]
    return length_W, deadline_W, value_W[order_W], order_W


def _steps(length_W: Lengths, times: BatchTimes) -> Lengths:
    """Return the longest waiting text between every two measured lengths, where there is one."""
    step_W = np.searchsorted(times.lengths, length_W)
    return np.array([length_W[step_W == step].max() for step in np.unique(step_W)])


Queues = Sequence[Sequence["Item"]]
"""By model: what waits for it, by deadline."""


@dataclass(frozen=True, slots=True, order=True)
class Item:
    """A request that waits at one level of its path, ordered by deadline."""

    deadline: float  # in seconds, earlier than the request's by the margin
    id: int
    request: Request = field(compare=False)
    step: int = field(compare=False)  # index in its path
    length: int = field(compare=False)  # tokens
    value: float = field(compare=False)
    alone: float = field(default=0.0, compare=False)  # seconds in a batch of its own, by the profile
    work: float = field(default=0.0, compare=False)  # seconds of the device in a batch of the best size, by the profile
    former: int | None = field(default=None, compare=False)  # the launch that gave the answer so far

    @property
    def until(self) -> float:
        """When it is given up: it has nothing to lose up to the request's deadline, or an answer to give by its own."""
        return self.request.deadline if self.former is None else self.deadline


@dataclass(frozen=True, slots=True)
class Proposal:
    """A batch of one model. `latest`: the time by which it must start for its most urgent request."""

    model: int
    batch: Batch
    items: tuple[Item, ...]
    latest: float


_Expected = Mapping[int, Sequence[Item]]
"""By model: what is expected to be in time."""
_Find = Callable[[Sequence[Item], BatchTimes, float, float, float, float], Batch | None]


class Choice:
    """Chooses for the scheduler whose knowledge, devices and tenants these are; keeps nothing between two choices."""

    def __init__(
        self,
        knowledge: Knowledge,
        times: Sequence[BatchTimes],
        devices: Devices[Item],
        fairness: Fairness,
        returns: Returns,
    ) -> None:
        self._knowledge, self._times, self._devices = knowledge, times, devices
        self._fairness, self._returns = fairness, returns

    def decide(self, queues: Queues, longest: Sequence[float], worker: int, now: float) -> Proposal | None:
        """Return the densest batch or, while it is calm, the most urgent one that would be late behind it.

        `longest`: by model a bound of `Item.alone`, in seconds. Where nothing is expected to be in time one request is
        tried; None where the worker has nothing to do.
        """
        served = [n for n, model in enumerate(self._knowledge.models) if queues[n] and worker in model.workers]
        expected = {n: items for n in served if (items := self._expected(queues[n], longest[n], now))}
        if not expected:
            waiting = ((n, item) for n in served for item in queues[n])
            tried = max(waiting, key=lambda pair: pair[1].value / pair[1].alone, default=None)
            return None if tried is None else self._alone(*tried)
        if not self._fairness.several:
            return self._best(expected, None, now)
        tenants = {item.request.tenant for items in expected.values() for item in items}
        proposals = ((turn, self._best(expected, turn, now)) for turn in self._fairness.turns(tenants))
        turn, proposal = next((p for p in proposals if p[1] is not None), (None, None))
        if turn is None or proposal is None:
            return proposal
        waiting_too = sum(item.request.tenant in turn for items in expected.values() for item in items)
        return proposal if waiting_too > len(proposal.items) else self._fill(proposal, expected, turn, now)

    def alone(self, path: Path, length: int, together: float) -> bool:
        """Return whether pauses cost more than the models before the last one save, as they make more launches.

        A launch is of `together` requests in the mean. Where those models save nothing the plan has other reasons.
        """
        costs = [self._times[model].cost(length).least * self._devices.slowdown for model in path.models]
        saved = costs[-1] - sum(share * cost for share, cost in zip(path.shares, costs, strict=True))
        return 0 < saved <= (sum(path.shares) - 1) * self._devices.excess / together

    def _expected(self, queue: Sequence[Item], longest: float, now: float) -> Sequence[Item]:
        """Return those of a queue that are expected to be in time, launched alone now."""
        sure = now + self._devices.seconds(longest)
        if queue[0].deadline >= sure:
            return queue
        at = bisect_left(queue, sure, key=lambda item: item.deadline)
        seconds = self._devices.seconds
        return [*(item for item in queue[:at] if item.deadline >= now + seconds(item.alone)), *queue[at:]]

    def _alone(self, model: int, item: Item) -> Proposal:
        took = self._devices.seconds(item.alone)
        return Proposal(model, Batch((0,), item.alone, item.value / took), (item,), item.deadline - took)

    def _best(self, expected: _Expected, turn: Turn, now: float) -> Proposal | None:
        queues = expected if turn is None else {n: _of(items, turn) for n, items in expected.items()}
        dense = max(
            (p for model, queue in queues.items() for p in self._dense(model, queue, now)),
            key=lambda p: p.batch.density,
            default=None,
        )
        if dense is None:
            return None
        dense = self._shorten(dense, now)
        if not self._calm(queues, now):
            return dense
        after = now + self._devices.seconds(dense.batch.seconds)
        pressing = [p for model, queue in queues.items() for p in self._urgent(model, queue, now) if p.latest < after]
        return min(pressing, key=lambda p: p.latest, default=dense)

    def _fill(self, proposal: Proposal, expected: _Expected, turn: frozenset[str], now: float) -> Proposal:
        """Add requests of tenants whose turn it is not, the least served first.

        They are no longer than those of the batch, all stay in time, and a second of the batch gets no less valuable.
        Those before them are answered no later than if each launch had only their share of the device.
        """
        model, items = proposal.model, list(proposal.items)
        seconds_B = self._times[model].batch_seconds(max(item.length for item in items))
        rank = {name: place for place, name in enumerate(self._fairness.order())}
        longest, latest = max(item.length for item in items), min(item.deadline for item in items)
        full = now + self._devices.seconds(float(seconds_B[-1]))  # a flood's first ones are often too late for that
        queue = (item for item in expected[model] if item.deadline >= full)
        others = (item for item in queue if item.request.tenant not in turn and item.length <= longest)
        value, density, count = sum(item.value for item in items), proposal.batch.density, len(items)
        most = self._returns.filled({i.request.tenant for i in items}, self._devices.seconds(proposal.batch.seconds))
        for item in nsmallest(POOL, others, key=lambda i: (rank[i.request.tenant], -i.value / i.work, i)):
            if len(items) == len(seconds_B):
                break
            took = self._devices.seconds(float(seconds_B[len(items)]))
            price = took + self._devices.excess
            if took <= most and now + took <= min(latest, item.deadline) and value + item.value >= density * price:
                items.append(item)
                value, density, latest = value + item.value, (value + item.value) / price, min(latest, item.deadline)
        if len(items) == count:
            return proposal
        seconds = float(seconds_B[len(items) - 1])
        full_batch = Batch((), seconds, density)
        return self._shorten(Proposal(model, full_batch, tuple(items), latest - self._devices.seconds(seconds)), now)

    def _shorten(self, proposal: Proposal, now: float) -> Proposal:
        """Leave out requests of tenants who are ahead of others while that costs little of the value a second.

        A launch is not interrupted: the others, who may come at any time, wait for all of it. For one that is back soon it
        may cost up to half, if the launch is then short enough for the tenant's share.
        """
        behind = self._fairness.behind()
        if behind is None:
            return proposal
        items = sorted(proposal.items, key=lambda item: item.request.tenant not in behind)
        least = max(sum(item.request.tenant in behind for item in items), 1)
        if least == len(items):
            return proposal
        longest_N = np.maximum.accumulate([item.length for item in items])
        seconds_N = self._times[proposal.model].table(longest_N)[range(len(items)), range(len(items))]
        took_N = np.array([self._devices.seconds(float(seconds)) for seconds in seconds_N])
        density_N = np.cumsum([item.value for item in items]) / (took_N + self._devices.excess)
        kept_N = density_N / proposal.batch.density
        count = next((n for n in range(least, len(items)) if kept_N[n - 1] >= SHORT), len(items))
        within = self._returns.others(self._devices.seconds(min(item.alone for item in items)), now)
        if took_N[count - 1] > within:
            shorter = [n for n in range(least, count) if took_N[n - 1] <= within and kept_N[n - 1] >= SHORTER]
            count = max(shorter, default=count)
        if count == len(items):
            return proposal
        latest = min(item.deadline for item in items[:count]) - float(took_N[count - 1])
        batch = Batch((), float(seconds_N[count - 1]), float(density_N[count - 1]))
        return Proposal(proposal.model, batch, tuple(items[:count]), latest)

    def _calm(self, queues: _Expected, now: float) -> bool:
        """Whether the work that waits for these models is small compared with the time left for it."""
        items = list(chain.from_iterable(queues.values()))
        work = sum(sum(i.work for i in queue) / len(self._knowledge.models[n].workers) for n, queue in queues.items())
        left = sum(item.deadline for item in items) / len(items) - now
        return work * self._devices.slowdown <= CALM * left

    def _dense(self, model: int, queue: Sequence[Item], now: float) -> Iterator[Proposal]:
        """Yield the model's densest batch, if any, from the POOL requests of the most value for their seconds."""
        places = range(len(queue))
        if len(queue) > POOL:
            density_W = np.array([item.value / item.work for item in queue])
            places = np.sort(np.argsort(-density_W, kind="stable")[:POOL]).tolist()
        yield from self._propose(model, densest, [queue[place] for place in places], now)

    def _urgent(self, model: int, queue: Sequence[Item], now: float) -> Iterator[Proposal]:
        """Yield the model's batch with its most urgent request, if any."""
        yield from self._propose(model, urgent, list(queue[:POOL]), now)

    def _propose(self, model: int, find: _Find, pool: list[Item], now: float) -> Iterator[Proposal]:
        devices = self._devices
        batch = find(pool, self._times[model], now, devices.slowdown, devices.turnaround, devices.excess)
        if batch is not None:
            items = tuple(pool[at] for at in batch.chosen)
            yield Proposal(model, batch, items, min(i.deadline for i in items) - devices.seconds(batch.seconds))


def _of(queue: Sequence[Item], turn: frozenset[str]) -> Sequence[Item]:
    return [item for item in queue if item.request.tenant in turn]
