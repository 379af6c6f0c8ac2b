"""The cascade scheduler: a queue for each model, and batches by length, deadline and value.

A pure state machine (see pliant/protocol.py) that keeps its devices by pliant/devices.py. What a level found reaches it
as data: a result's `gain` (None: the answer suffices) and the `length` that the next level would read. A request
without time for its next level gets the answer that it has, with the reason: keeping the deadline comes before the last
percent. So does one whose next level still runs when the deadline comes.

A free worker takes the batch of the most value a second among the models that it has loaded. The value of a request is
its utility times the first level's accuracy, and beyond the first level its utility times the expected gain. So under
load further levels wait behind first answers. While little waits (`CALM`) there is time for all: a batch whose most
urgent request would be late behind the densest batch goes first, so that requests of little value do not starve.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Set
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import takewhile
from math import inf

from pliant.cascade.choice import BatchTimes, Choice, Item
from pliant.cascade.knowledge import Knowledge, Path
from pliant.devices import Devices, Retries
from pliant.errors import InputError
from pliant.fairness import FAIRNESS, Fairness, FairnessConfig, Returns
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

TOGETHER = 0.1  # weight of the latest launch in the mean of requests of a launch
LEAST_VALUE = 1e-3  # that a gain counts as, so that no promised level waits for ever


@dataclass(frozen=True, slots=True)
class Options:
    """Limits of the scheduler."""

    margin: float = 0.15  # share of the time to a deadline that is kept for the way back to the client
    max_waiting: int = 2048  # requests a worker; further ones are "full": dropped, or answered with what they have
    attempts: int = 2  # failed launches of one level, the last one alone, after which a request goes no further
    restart_pause: float = 1.0  # seconds before a failed restart is tried again
    fairness: FairnessConfig = FAIRNESS  # how tenants share the devices


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
        self._returns, self._kept = Returns(self._fairness), inf  # until when the last free device is kept for somebody
        self._retries = Retries(self._options.attempts)
        self._times = [BatchTimes(model.latency) for model in knowledge.models]
        self._queues: list[list[Item]] = [[] for _ in knowledge.models]
        self._longest = [0.0 for _ in knowledge.models]  # bound of `Item.alone` in each queue, in seconds
        self._choice = Choice(knowledge, self._times, self._devices, self._fairness, self._returns)
        self._running: dict[int, Item] = {}  # that have an answer while a further level runs, by request
        self._together = 1.0  # requests of a launch, smoothed
        self._due: list[tuple[float, int]] = []  # a heap of these by deadline; some entries are outdated

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues))

    def handle(self, event: Event, now: float) -> list[Action]:
        match event:
            case Arrived(request):
                actions = self._arrive(request)
                self._returns.came(request.id, request.tenant, now)
            case Finished():
                actions = self._finish(event, now)
            case Failed():
                actions = self._fail(event, now)
            case Cancelled(request_id):
                self._cancel(request_id)
                self._returns.ended(request_id, now)
                actions = []
            case Changed():
                raise InputError("facts", "given", "left out: a cascade's scheduler is replaced as a whole")
            case Woke() | Limited():
                actions = []
        actions += self._expire(now)
        for action in actions:
            self._returns.ended(action.request, now)  # type: ignore[union-attr]  # nothing is launched yet
        actions += self._devices.restarts(now)
        for worker in sorted(self._devices.free) if self.waiting else ():
            actions += self._launch(worker, now)
            if not self.waiting:
                break
        return actions

    def wake_at(self) -> float | None:
        while self._due and not self._is_due(self._due[0]):
            heappop(self._due)
        times = [self._devices.wake_at(), *(self._first_hopeless(model) for model in range(len(self._queues)))]
        times += [self._due[0][0]] if self._due else []
        times += [self._kept] if self.waiting and self._devices.free else []
        return min((at for at in times if at is not None), default=None)

    def _is_due(self, entry: tuple[float, int]) -> bool:
        at, id = entry
        return id in self._running and self._running[id].deadline == at

    def _first_hopeless(self, model: int) -> float | None:
        """Return the earliest `_hopeless_at` of a queue. As it is sorted by deadline, most need not be looked at."""
        longest = self._devices.hoped(self._longest[model])
        first: float | None = None
        for item in self._queues[model]:
            if first is not None and item.deadline - longest >= first:
                break
            at = self._hopeless_at(item)
            first = at if first is None else min(first, at)
        return first

    def _path(self, task: str, candidate: int) -> Path:
        paths = self._knowledge.tasks.get(task, ())
        if not 0 <= candidate < len(paths):
            raise InputError("task and candidate", (task, candidate), "known to the scheduler")
        return paths[candidate]

    def _path_of(self, item: Item) -> Path:
        return self._path(item.request.task, item.request.setting)

    def candidate(self, task: str, wanted: int, length: int) -> int:
        """Return the candidate to ask of for a request of `length` tokens: `wanted`, or its last model alone.

        That is whichever takes less of the devices now, with the pauses of every launch. Both are numbers. Raises
        `InputError` for an unknown task or candidate.
        """
        path = self._path(task, wanted)
        if path.instead is None or not self._choice.alone(path, length, self._together):
            return wanted
        return path.instead

    def _arrive(self, request: Request) -> list[Action]:
        accuracy = self._path(request.task, request.setting).accuracy  # raises before anything has changed
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
        model = self._path_of(item).models[item.step]
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
            self._running.pop(item.id, None)
            actions += self._go_on(item, results.get(item.id, Result(item.id)), event.launch)
        return actions

    def _go_on(self, item: Item, result: Result, launch: int) -> list[Action]:
        last = item.step + 1 == len(self._path_of(item).models)
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
            self._running.pop(item.id, None)
            if item.id in given_up:
                actions.append(_give_up(item, "failed"))
            else:
                self._queue(item)
        return actions

    def _cancel(self, request: int) -> None:
        self._retries.forget(request)
        self._running.pop(request, None)
        if not self._devices.cancel(request):
            self._remove(request)

    def _remove(self, request: int) -> None:
        self._retries.forget(request)
        self._fairness.leave(request)
        for model in range(len(self._queues)):
            self._take_out(model, {request})

    def _expire(self, now: float) -> list[Action]:
        """Drop or answer the requests that no launch from now on could serve in time, and those that run for too long."""
        actions: list[Action] = []
        while self._due and self._due[0][0] <= now:
            if self._is_due(entry := heappop(self._due)):
                item = self._running.pop(entry[1])
                self._devices.cancel(item.id)
                self._retries.forget(item.id)
                actions.append(_give_up(item, "late"))
        for model, queue in enumerate(self._queues):
            longest = self._devices.hoped(self._longest[model])
            pressed = takewhile(lambda item: item.deadline - longest <= now, queue)  # noqa: B023  used at once
            late = [item for item in pressed if self._hopeless_at(item) <= now]
            if late and len(late) == len(queue) and self._may_try(model, late[-1], now):
                late.pop()
            if late:
                self._take_out(model, {item.id for item in late})
                actions += [_give_up(item, "failed" if item.id in self._retries else "late") for item in late]
                for item in late:
                    self._retries.forget(item.id)
                    self._fairness.leave(item.id)
        return actions

    def _hopeless_at(self, item: Item) -> float:
        """Return from when on no launch of the request could be in time, were it as fast as the fastest of late."""
        return item.until - self._devices.hoped(item.alone)

    def _may_try(self, model: int, item: Item, now: float) -> bool:
        """Whether a device has nothing else to do than to try a hopeless first level: no belief goes untested."""
        free = any(worker in self._devices.free for worker in self._knowledge.models[model].workers)
        return free and item.former is None and item.until > now + self._devices.hoped(item.alone, idle=True)

    def _launch(self, worker: int, now: float) -> list[Launch]:
        """Launch the worker's next batch, if there is one and the worker is not kept for somebody else."""
        if self._fairness.contended and len(self._devices.free) == 1:
            kept = self._returns.until(now)
            self._kept = inf if kept is None else kept
            if kept is not None:
                return []
        proposal = self._choice.decide(self._queues, self._longest, worker, now)
        if proposal is None:
            return []
        together = set(self._retries.together([item.id for item in proposal.items]))
        self._take_out(proposal.model, together)
        items, seconds = proposal.items, proposal.batch.seconds
        if len(together) < len(items):
            items = tuple(item for item in items if item.id in together)
            longest = max(item.length for item in items)
            seconds = float(self._times[proposal.model].batch_seconds(longest)[len(items) - 1])
        for item in items:
            if item.former is not None:
                self._running[item.id] = item
                heappush(self._due, (item.deadline, item.id))
        self._together += TOGETHER * (len(items) - self._together)
        launch = self._devices.launch(worker, items, seconds, now, proposal.model)
        self._fairness.launch(launch.id, launch.requests, seconds, [item.work for item in items])
        self._returns.launched(launch.expected)
        return [launch]

    def _take_out(self, model: int, ids: Set[int]) -> None:
        self._queues[model] = [item for item in self._queues[model] if item.id not in ids]

    def check(self) -> None:
        """Raises AssertionError unless workers are accounted for, requests wait or run once, and queues are sorted."""
        self._devices.check()
        self._fairness.check([item.id for queue in self._queues for item in queue])
        places = [item.id for queue in self._queues for item in queue]
        places += [item.id for running in self._devices.running for item in running.carried]
        assert len(set(places)) == len(places), "a request is in two places"
        self._retries.check(set(places))
        carried = {item.id: item for running in self._devices.running for item in running.carried}
        assert self._running == {id: item for id, item in carried.items() if item.former is not None}, "answers so far"
        assert all(queue == sorted(queue) for queue in self._queues), "a queue is out of order"
        for model, queue in enumerate(self._queues):
            assert all(self._path_of(item).models[item.step] == model for item in queue), "wrong queue"
            assert all((item.former is None) == (item.step == 0) for item in queue), "an answer without its launch"


def _give_up(item: Item, reason: str) -> Action:
    """Answer with what the request has so far, or drop it if it has nothing."""
    return Drop(item.id, reason) if item.former is None else Answer(item.id, item.former, reason)
