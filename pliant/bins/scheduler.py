"""The bins scheduler: it keeps account of requests and devices over one of two pools, shared.py or single.py.

A pure state machine (see pliant/protocol.py). A request is answered by the launch that ran it; one whose worker fails
is tried again if its attempts and its deadline allow. With placement "single" a plan for the devices that are up is
made each period, and swapping a device's runtime is a `Launch` of kind "load" that occupies it; planning happens within
`handle` and takes some milliseconds (see planning/plan.py). With placement "shared" nothing is planned.

No other event costs more than the logarithm of the number of devices (amortised), but for a decision to use one device
less.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import inf

from pliant.bins.knowledge import Config, Knowledge, latest_end
from pliant.bins.planning.scaling import Scaler
from pliant.bins.shared import SharedPool
from pliant.bins.single import SinglePool
from pliant.devices import Devices, Retries
from pliant.errors import InputError
from pliant.fairness import Fairness, Returns
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
    Limited,
    Request,
    Woke,
)

Pool = SharedPool | SinglePool
"""The waiting requests, and what a free worker does next.

Methods that return workers return those that may take something now, or the one that a request went to. `lost` is called
before the requests that the failed worker ran come back by `retry`, and before a worker is asked for.
"""


class BinsScheduler:
    """Gives requests to devices so that answers come in time, and drops those that cannot; `handle` takes events.

    It has `config.workers` devices, numbered from 0, all free at the start. The module's head says how it decides.
    """

    def __init__(self, knowledge: Knowledge, config: Config | None = None) -> None:
        self._config = config or Config()
        self._streams = {stream.name: stream for stream in knowledge.streams}
        self._longest = {stream.name: stream.max_length for stream in knowledge.streams}
        self._devices: Devices[Request] = Devices(self._config.workers, self._config.restart_pause)
        self._fairness = Fairness(self._config.fairness)
        kind: type[SharedPool] | type[SinglePool] = SharedPool if knowledge.placement == "shared" else SinglePool
        # Until when the last free device is kept for somebody. With placement "single" others may not take what it holds.
        self._returns, self._kept, self._shared = Returns(self._fairness), inf, knowledge.placement == "shared"
        self._retries = Retries(self._config.attempts)
        self._pool: Pool = kind(knowledge, self._config, self._devices, self._fairness, self._retries)
        self._limit = self._config.max_waiting * self._config.workers
        self._scaler = Scaler(self._config.scaling) if self._config.scaling else None
        self._spare: list[int] = []

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return self._pool.waiting

    @property
    def active(self) -> int:
        """Number of devices in use."""
        return self._config.workers - len(self._spare)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event and return what is to be done now. Raises `InputError` for a request that no stream takes."""
        if type(event) is Arrived:  # first, as most events are arrivals
            return self._arrive(event.request, now)
        actions: list[Action] = []
        match event:
            case Finished():
                self._finish(event, now, actions)
            case Failed():
                self._fail(event, now, actions)
            case Cancelled(request):
                self._returns.ended(request, now)
                self._retries.forget(request)
                if not self._devices.cancel(request):
                    self._pool.cancel(request)
                    self._fairness.leave(request)
            case Changed():
                raise InputError("facts", "given", "left out: a bins scheduler is replaced as a whole")
            case Woke() | Limited():
                self._wake(now, actions)
        return actions

    def wake_at(self) -> float | None:
        """Return when `Woke` should come if nothing else happens before; None for never."""
        times = [self._devices.wake_at(), self._pool.wake_at(), self._scaler.wake_at() if self._scaler else None]
        times += [self._kept] if self._kept < inf and self._devices.free else []
        return min((at for at in times if at is not None), default=None)

    def check(self) -> None:
        """Assert that workers are accounted for, and that each request waits once or runs."""
        self._devices.check()
        self._pool.check()
        running = [request.id for launch in self._devices.running for request in launch.carried]
        assert len(set(running)) == len(running), "a request runs twice"
        self._fairness.check(self._pool.ids())
        self._retries.check({*running, *self._pool.ids()})

    def _arrive(self, request: Request, now: float) -> list[Action]:
        if not 0 <= request.length <= self._longest.get(request.task, -1):
            longest = {stream.name: stream.max_length for stream in self._streams.values()}
            raise InputError("task and length", (request.task, request.length), f"at most one of {longest}")
        surplus = None
        if self._pool.waiting >= self._limit:
            surplus = self._fairness.surplus(request.tenant, request.weight)
            if surplus is None:
                return self._drop(request.id, "full", now)
        if self._config.drop_late and self._is_hopeless(request, now):
            return self._drop(request.id, "late", now)
        actions = self._make_room(surplus, now) if surplus is not None else []
        self._returns.came(request.id, request.tenant, now)
        self._fairness.join(request.id, request.tenant, request.weight)
        worker = self._pool.add(request, now)
        if worker is not None and worker in self._devices.free:
            self._serve(worker, now, actions)
        return actions

    def _make_room(self, request: int, now: float) -> list[Action]:
        """Drop a waiting request of a tenant that has more of them than others."""
        self._pool.cancel(request)
        self._fairness.leave(request)
        return self._drop(request, "full", now)

    def _is_hopeless(self, request: Request, now: float) -> bool:
        """Whether no launch could be in time. While a device idles it may try, so that no belief goes untested."""
        return now + self._devices.hoped(self._seconds(request), self._pool.idle) > request.deadline

    def _seconds(self, request: Request) -> float:
        """Return the seconds of the request by itself, by the profile."""
        return self._streams[request.task].cost(request.length)[1]

    def _is_kept(self, now: float) -> bool:
        """Whether the last free device is kept for somebody who will be back at once."""
        kept = self._returns.until(now) if len(self._devices.free) == 1 and self.waiting else None
        self._kept = inf if kept is None else kept
        return kept is not None

    def _serve(self, worker: int, now: float, actions: list[Action]) -> None:
        if self._shared and self._fairness.contended and self._is_kept(now):
            return
        work = self._pool.take(worker, now)
        if work is not None:
            launch = self._devices.launch(worker, work.requests, work.seconds, now, work.setting, work.kind)
            costs = [self._seconds(request) for request in work.requests] if self._fairness.contended else ()
            self._fairness.launch(launch.id, launch.requests, work.seconds, costs)
            self._returns.launched(launch.expected)
            actions.append(launch)

    def _serve_free(self, workers: Iterable[int], now: float, actions: list[Action]) -> None:
        for worker in workers:
            if worker in self._devices.free:
                self._serve(worker, now, actions)

    def _finish(self, event: Finished, now: float, actions: list[Action]) -> None:
        ended = self._devices.finish(event, now)
        self._fairness.ended(event.launch, event.seconds)
        actions += [Answer(request.id, event.launch) for request in ended.carried]
        for request in ended.carried:
            self._returns.ended(request.id, now)
        if self._retries:
            for request in ended.carried:
                self._retries.forget(request.id)
        if self._scaler:
            for request in ended.carried:
                self._scaler.answered(now, (now - request.arrival) / self._streams[request.task].slo)
        launch = ended.launch
        workers = self._pool.ended(launch.worker, launch.kind, len(launch.requests), now)
        self._expire(now, actions)
        self._serve_free(workers, now, actions)

    def _fail(self, event: Failed, now: float, actions: list[Action]) -> None:
        ended = self._devices.fail(event, now)
        self._fairness.ended(event.launch, min(now - ended.launched, ended.expected))
        launch = ended.launch
        lost, count = launch.worker not in self._devices.free, len(launch.requests)
        retried: list[int] = []
        workers = self._pool.lost(launch.worker, now) if lost else self._pool.ended(launch.worker, "run", count, now)
        given_up = self._retries.failed([request.id for request in ended.carried], count == 1, lost)
        for request in ended.carried:
            if request.id in given_up or latest_end(request, self._config.margin) <= now:
                actions += self._drop(request.id, "failed", now)
                continue
            self._fairness.join(request.id, request.tenant, request.weight)
            if (worker := self._pool.retry(request, now)) is not None:
                retried.append(worker)
        actions += self._devices.restarts(now)
        self._expire(now, actions)
        self._serve_free(chain(workers, retried), now, actions)

    def _wake(self, now: float, actions: list[Action]) -> None:
        actions += self._devices.restarts(now)
        self._expire(now, actions)
        workers = self._pool.woken(now)
        if self._scaler:
            workers += self._scale(self._scaler.decide(now, self._pool.late))
        if self._kept <= now:  # nobody came for it
            self._kept = inf
            workers += self._devices.free
        self._serve_free(workers, now, actions)

    def _scale(self, more: int) -> list[int]:
        """Take one device more or less into use, and return the workers that may take something."""
        if more > 0 and self._spare:
            return self._pool.enlist(self._spare.pop())
        assert self._config.scaling is not None, "a scaler has its rule"
        if more < 0 and self.active > self._config.scaling.min_devices:
            spare = set(self._spare)
            worker = self._pool.retire([worker for worker in range(self._config.workers) if worker not in spare])
            self._spare += [] if worker is None else [worker]
        return []

    def _expire(self, now: float, actions: list[Action]) -> None:
        for request in self._pool.expire(now):
            self._fairness.leave(request.id)
            actions += self._drop(request.id, "failed" if request.id in self._retries else "late", now)

    def _drop(self, request: int, reason: str, now: float) -> list[Action]:
        self._retries.forget(request)
        self._returns.ended(request, now)
        if self._scaler:
            self._scaler.answered(now, float("inf"))
        return [Drop(request, reason)]
