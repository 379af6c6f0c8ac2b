"""Which batch a free worker of the cascade takes next: of the most value a second, or the one with the most urgent request.

Requests that are not expected to be in time are left aside; where nothing else waits, one of them is tried that would be in
time were the launch as fast as the fastest of late, or that waits while the device has nothing else to do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import chain

import numpy as np

from pliant.cascade.batching import Batch, BatchTimes, densest, urgent
from pliant.cascade.knowledge import Knowledge, Path
from pliant.devices import Devices
from pliant.fairness import Fairness, Returns, Turn
from pliant.protocol import Request

POOL = 64  # requests of one model that are considered for a batch
CALM = 0.25  # of the mean time left: up to so much waiting work, urgency decides
SHORT = 0.95  # of a batch's value a second that a shorter one for tenants who are ahead of others must keep,
SHORTER = 0.5  # and one between two launches of a tenant who is behind and back soon

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
