"""The cascade scheduler: a queue for each model, and batches by length, deadline and value.

A pure state machine (see pliant/protocol.py) that keeps its devices by pliant/devices.py. What a level found reaches it
as data: a result's `gain` (None: the answer suffices) and the `length` that the next level would read. A request
without time for its next level gets the answer that it has, with the reason: keeping the deadline comes before the last
percent.

A free worker takes the batch of the most value a second among the models that it has loaded. The value of a request is
its utility times the first level's accuracy, and beyond the first level its utility times the expected gain. So under
load further levels wait behind first answers. While little waits (`CALM`) there is time for all: a batch whose most
urgent request would be late behind the densest batch goes first, so that requests of little value do not starve.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from itertools import chain, takewhile

import numpy as np

from pliant.cascade.batching import Batch, BatchTimes, densest, urgent
from pliant.cascade.knowledge import Knowledge, Path
from pliant.devices import Devices
from pliant.errors import InputError
from pliant.fairness import FAIRNESS, Fairness, FairnessConfig, Turn
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Event,
    Failed,
    Finished,
    Launch,
    Limited,
    Request,
    Result,
    Woke,
)
from pliant.retries import Retries

POOL = 64  # requests of one model that are considered for a batch
CALM = 0.25  # of the mean time left: up to so much waiting work, urgency decides
SHORT = 0.95  # of a batch's value a second that a shorter one for tenants who are ahead of others must keep
LEAST_VALUE = 1e-3  # that a gain counts as, so that no promised level waits for ever


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of the scheduler."""

    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the client
    max_waiting: int = 2048  # requests a worker; further ones are "full": dropped, or answered with what they have
    attempts: int = 2  # failed launches of one level, the last one alone, after which a request goes no further
    restart_pause: float = 1.0  # seconds before a failed restart is tried again
    fairness: FairnessConfig = FAIRNESS  # how tenants share the devices


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


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A batch of one model. `latest`: the time by which it must start for its most urgent request."""

    model: int
    batch: Batch
    items: tuple[Item, ...]
    latest: float


_Find = Callable[[Sequence[Item], BatchTimes, float, float, float], Batch | None]


class CascadeScheduler:
    """Sends requests through the levels of cascades, in batches of the most value per second; `handle` takes events.

    It has `workers` devices, numbered from 0, all free at the start. The module's head says how it decides.
    """

    def __init__(self, knowledge: Knowledge, workers: int = 1, options: Options | None = None) -> None:
        knowledge.check(workers)
        self._knowledge, self._options = knowledge, options or Options()
        self._limit = self._options.max_waiting * workers
        self._devices: Devices[Item] = Devices(workers, self._options.restart_pause)
        self._fairness = Fairness(self._options.fairness)
        self._retries = Retries(self._options.attempts)
        self._times = [BatchTimes(model.latency) for model in knowledge.models]
        self._queues: list[list[Item]] = [[] for _ in knowledge.models]
        self._longest = [0.0 for _ in knowledge.models]  # bound of `Item.alone` in each queue, in seconds

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues))

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case Arrived(request):
                actions = self._arrive(request)
            case Finished():
                actions = self._finish(event, now)
            case Failed():
                actions = self._fail(event, now)
            case Cancelled(request_id):
                self._cancel(request_id)
                actions = []
            case Changed():
                raise InputError("facts", "given", "left out: a cascade's scheduler is replaced as a whole")
            case Woke() | Limited():
                actions = []
        actions += self._expire(now)
        actions += self._devices.restarts(now)
        for worker in sorted(self._devices.free) if self.waiting else ():
            actions += self._launch(worker, now)
            if not self.waiting:
                break
        return actions

    def wake_at(self) -> float | None:
        times = [self._devices.wake_at(), *(self._first_latest(model) for model in range(len(self._queues)))]
        return min((at for at in times if at is not None), default=None)

    def _first_latest(self, model: int) -> float | None:
        """Return the earliest `_latest` of a queue. As it is sorted by deadline, most of it need not be looked at."""
        longest = self._devices.seconds(self._longest[model])
        first: float | None = None
        for item in self._queues[model]:
            if first is not None and item.deadline - longest >= first:
                break
            latest = self._latest(item)
            first = latest if first is None else min(first, latest)
        return first

    def _path(self, request: Request) -> Path:
        paths = self._knowledge.tasks.get(request.task, ())
        if not 0 <= request.setting < len(paths):
            raise InputError("task and candidate", (request.task, request.setting), "known to the scheduler")
        return paths[request.setting]

    def _arrive(self, request: Request) -> list[Action]:
        accuracy = self._path(request).accuracy  # raises before anything has changed
        if (dropped := self._make_room(request)) is None:
            return [Drop(request.id, "full")]
        inner = request.arrival + (1 - self._options.margin) * (request.deadline - request.arrival)
        utility = self._fairness.value(request.tenant, request.weight, request.utility)
        request = request if utility == request.utility else replace(request, utility=utility)
        self._queue(Item(min(request.deadline, inner), request.id, request, 0, request.length, utility * accuracy))
        return dropped

    def _make_room(self, request: Request) -> list[Action] | None:
        """Give up a waiting request of a tenant that has more of them, if as many wait as may; None: no such tenant."""
        if self.waiting < self._limit:
            return []
        surplus = self._fairness.surplus(request.tenant, request.weight)
        if surplus is None:
            return None
        item = next(item for queue in self._queues for item in queue if item.id == surplus)
        self._remove(surplus)
        return [_give_up(item, "full")]

    def _queue(self, item: Item) -> None:
        self._fairness.join(item.id, item.request.tenant, item.request.weight)
        model = self._path(item.request).models[item.step]
        queue, cost = self._queues[model], self._times[model].cost(item.length)
        self._longest[model] = max(self._longest[model], cost.alone) if queue else cost.alone
        insort(queue, replace(item, alone=cost.alone, work=cost.least))

    def _finish(self, event: Finished, now: float) -> list[Action]:
        running = self._devices.finish(event, now)
        self._fairness.ended(event.launch, event.seconds)
        results = {result.request: result for result in event.results}
        actions: list[Action] = []
        for item in running.carried:
            self._retries.forget(item.id)
            actions += self._go_on(item, results.get(item.id, Result(item.id)), event.launch)
        return actions

    def _go_on(self, item: Item, result: Result, launch: int) -> list[Action]:
        last = item.step + 1 == len(self._path(item.request).models)
        if last or result.gain is None:
            return [Answer(item.id, launch)]
        if (dropped := self._make_room(item.request)) is None:
            return [Answer(item.id, launch, "full")]
        value = item.request.utility * max(result.gain, LEAST_VALUE)
        length = result.length or item.length
        self._queue(replace(item, step=item.step + 1, length=length, value=value, former=launch))
        return dropped

    def _fail(self, event: Failed, now: float) -> list[Action]:
        running = self._devices.fail(event, now)
        self._fairness.ended(event.launch, min(now - running.launched, running.expected))
        lost, alone = running.launch.worker not in self._devices.free, len(running.launch.requests) == 1
        given_up = self._retries.failed([item.id for item in running.carried], alone, lost)
        actions: list[Action] = []
        for item in running.carried:
            if item.id in given_up:
                actions.append(_give_up(item, "failed"))
            else:
                self._queue(item)
        return actions

    def _cancel(self, request: int) -> None:
        self._retries.forget(request)
        if not self._devices.cancel(request):
            self._remove(request)

    def _remove(self, request: int) -> None:
        self._retries.forget(request)
        self._fairness.leave(request)
        for model in range(len(self._queues)):
            self._take_out(model, {request})

    def _expire(self, now: float) -> list[Action]:
        """Drop or answer the requests that no launch from now on could serve in time."""
        actions: list[Action] = []
        for model, queue in enumerate(self._queues):
            longest = self._devices.seconds(self._longest[model])
            pressed = takewhile(lambda item: item.deadline - longest <= now, queue)  # noqa: B023  used at once
            late = [item for item in pressed if self._latest(item) <= now]
            if late:
                self._take_out(model, {item.id for item in late})
                actions += [_give_up(item, "failed" if item.id in self._retries else "late") for item in late]
                for item in late:
                    self._retries.forget(item.id)
                    self._fairness.leave(item.id)
        return actions

    def _latest(self, item: Item) -> float:
        """Return the latest time at which the request can be launched to be in time."""
        return item.deadline - self._devices.seconds(item.alone)

    def _launch(self, worker: int, now: float) -> list[Launch]:
        """Launch the worker's next batch, if there is one."""
        proposal = self._decide(worker, now)
        if proposal is None:
            return []
        together = set(self._retries.together([item.id for item in proposal.items]))
        self._take_out(proposal.model, together)
        items, seconds = proposal.items, proposal.batch.seconds
        if len(together) < len(items):
            items = tuple(item for item in items if item.id in together)
            longest = max(item.length for item in items)
            seconds = float(self._times[proposal.model].batch_seconds(longest)[len(items) - 1])
        launch = self._devices.launch(worker, items, seconds, now, proposal.model)
        self._fairness.launch(launch.id, launch.requests, seconds, [item.work for item in items])
        return [launch]

    def _take_out(self, model: int, ids: Set[int]) -> None:
        self._queues[model] = [item for item in self._queues[model] if item.id not in ids]

    def _decide(self, worker: int, now: float) -> _Proposal | None:
        """Return the densest batch or, while it is calm, the most urgent one that would be late behind it."""
        served = [n for n, model in enumerate(self._knowledge.models) if self._queues[n] and worker in model.workers]
        if not self._fairness.several:
            return self._best(served, None, now)
        tenants = {item.request.tenant for model in served for item in self._queues[model]}
        proposals = ((turn, self._best(served, turn, now)) for turn in self._fairness.turns(tenants))
        turn, proposal = next((p for p in proposals if p[1] is not None), (None, None))
        if turn is None or proposal is None:
            return proposal
        waiting = sum(item.request.tenant in turn for model in served for item in self._queues[model])
        return proposal if waiting > len(proposal.items) else self._fill(proposal, turn, now)

    def _best(self, served: list[int], turn: Turn, now: float) -> _Proposal | None:
        queues = {n: self._of(self._queues[n], turn) for n in served}
        dense = max(
            (p for model, queue in queues.items() for p in self._dense(model, queue, now)),
            key=lambda p: p.batch.density,
            default=None,
        )
        if dense is None:
            return None
        dense = self._shorten(dense)
        if not self._calm(queues, now):
            return dense
        after = now + self._devices.seconds(dense.batch.seconds)
        pressing = [p for model, queue in queues.items() for p in self._urgent(model, queue, now) if p.latest < after]
        return min(pressing, key=lambda p: p.latest, default=dense)

    @staticmethod
    def _of(queue: list[Item], turn: Turn) -> list[Item]:
        return queue if turn is None else [item for item in queue if item.request.tenant in turn]

    def _fill(self, proposal: _Proposal, turn: frozenset[str], now: float) -> _Proposal:
        """Add requests of tenants whose turn it is not, the least served first.

        They are no longer than those of the batch, all stay in time, and a second of the batch gets no less valuable.
        """
        model, items = proposal.model, list(proposal.items)
        seconds_B = self._times[model].batch_seconds(max(item.length for item in items))
        rank = {name: place for place, name in enumerate(self._fairness.order())}
        longest, latest = max(item.length for item in items), min(item.deadline for item in items)
        full = now + self._devices.seconds(float(seconds_B[-1]))  # a flood's first ones are often too late for that
        queue = (item for item in self._queues[model] if item.deadline >= full)
        others = (item for item in queue if item.request.tenant not in turn and item.length <= longest)
        value, density, count = sum(item.value for item in items), proposal.batch.density, len(items)
        for item in nsmallest(POOL, others, key=lambda i: (rank[i.request.tenant], -i.value / i.work, i)):
            if len(items) == len(seconds_B):
                break
            took = self._devices.seconds(float(seconds_B[len(items)]))
            if now + took <= min(latest, item.deadline) and value + item.value >= density * took:
                items.append(item)
                value, density, latest = value + item.value, (value + item.value) / took, min(latest, item.deadline)
        if len(items) == count:
            return proposal
        seconds = float(seconds_B[len(items) - 1])
        full_batch = Batch((), seconds, density)
        return self._shorten(_Proposal(model, full_batch, tuple(items), latest - self._devices.seconds(seconds)))

    def _shorten(self, proposal: _Proposal) -> _Proposal:
        """Leave out requests of tenants who are ahead of others while that costs little of the value a second.

        A launch is not interrupted: the others, who may come at any time, wait for all of it.
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
        value_N = np.cumsum([item.value for item in items])
        for count in range(least, len(items)):
            seconds = float(seconds_N[count - 1])
            took = self._devices.seconds(seconds)
            density = float(value_N[count - 1]) / took
            if density >= SHORT * proposal.batch.density:
                latest = min(item.deadline for item in items[:count]) - took
                return _Proposal(proposal.model, Batch((), seconds, density), tuple(items[:count]), latest)
        return proposal

    def _calm(self, queues: Mapping[int, list[Item]], now: float) -> bool:
        """Whether the work that waits for these models is small compared with the time left for it."""
        items = list(chain.from_iterable(queues.values()))
        work = sum(sum(i.work for i in queue) / len(self._knowledge.models[n].workers) for n, queue in queues.items())
        left = sum(item.deadline for item in items) / len(items) - now
        return work * self._devices.slowdown <= CALM * left

    def _dense(self, model: int, queue: list[Item], now: float) -> Iterator[_Proposal]:
        """Yield the model's densest batch, if any, from the POOL requests of the most value for their seconds."""
        places = range(len(queue))
        if len(queue) > POOL:
            density_W = np.array([item.value / item.work for item in queue])
            places = np.sort(np.argsort(-density_W, kind="stable")[:POOL]).tolist()
        yield from self._propose(model, densest, [queue[place] for place in places], now)

    def _urgent(self, model: int, queue: list[Item], now: float) -> Iterator[_Proposal]:
        """Yield the model's batch with its most urgent request, if any."""
        yield from self._propose(model, urgent, queue[:POOL], now)

    def _propose(self, model: int, find: _Find, pool: list[Item], now: float) -> Iterator[_Proposal]:
        devices = self._devices
        batch = find(pool, self._times[model], now, devices.slowdown, devices.turnaround)
        if batch is not None:
            items = tuple(pool[at] for at in batch.chosen)
            yield _Proposal(model, batch, items, min(i.deadline for i in items) - devices.seconds(batch.seconds))

    def check(self) -> None:
        """Raises AssertionError unless workers are accounted for, requests wait or run once, and queues are sorted."""
        self._devices.check()
        self._fairness.check([item.id for queue in self._queues for item in queue])
        places = [item.id for queue in self._queues for item in queue]
        places += [item.id for running in self._devices.running for item in running.carried]
        assert len(set(places)) == len(places), "a request is in two places"
        self._retries.check(set(places))
        assert all(queue == sorted(queue) for queue in self._queues), "a queue is out of order"
        for model, queue in enumerate(self._queues):
            assert all(self._path(item.request).models[item.step] == model for item in queue), "wrong queue"
            assert all((item.former is None) == (item.step == 0) for item in queue), "an answer without its launch"


def _give_up(item: Item, reason: str) -> Action:
    """Answer with what the request has so far, or drop it if it has nothing."""
    return Drop(item.id, reason) if item.former is None else Answer(item.id, item.former, reason)
