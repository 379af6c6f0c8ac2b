"""asyncio drives a scheduler: requests in, answers out, launches carried to workers.

Knows the event loop, the clock and the books of what is pending; decides nothing. Everything the scheduler sees and
says is recorded, so that `replay` of the journal gives the same decisions. Each submitted request is answered exactly
once: with an output, with a drop, or with an exception where the scheduler itself broke.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from pliant.errors import InputError, SchedulerError, WorkerError
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Changed,
    Drop,
    Event,
    Finished,
    JournalEntry,
    Launch,
    Request,
    Result,
    Scheduler,
    Woke,
)
from serving.answers import Completed, Dispatched, LaunchResult, Pending, Rejected
from serving.clock import Clock
from serving.workers.worker import Worker
from serving.workers.worker_slot import WorkerSlot

logger = logging.getLogger("pliant.serving")

Record = Callable[[JournalEntry], None]
Read = Callable[[Pending, Result], Result]


@dataclass(frozen=True, slots=True)
class Limits:
    launch: float = 60.0  # seconds after which a running worker counts as hung and is killed
    drain: float = 120.0  # seconds that `stop` waits for requests in flight


class Driver:
    """`submit` from any number of tasks of one event loop, between `start` and `stop`."""

    def __init__(
        self,
        scheduler: Scheduler,
        workers: Sequence[Worker],
        record: Record,
        clock: Clock,
        limits: Limits = Limits(),
        died: Callable[[], None] = lambda: None,
        read: Read = lambda _pending, result: result,
    ) -> None:
        """`died` is called for each worker that dies while it has nothing to do; it is started again.

        `read` is shown every pending request after each of its launches: it may say more in the result than that there
        is an output, and change what the next launch is sent. Where it raises, that is this one request's answer.
        """
        self._scheduler, self._record, self._clock, self._limits = scheduler, record, clock, limits
        self._read = read
        self._lanes = [WorkerSlot(worker, limits.launch, died) for worker in workers]
        self._pending: dict[int, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = count()
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._broken: str | None = None
        self._known: Any = None

    @property
    def now(self) -> float:
        """The clock that deadlines and the journal are on."""
        return self._clock()

    @property
    def pending(self) -> int:
        """Requests without an answer."""
        return len(self._pending)

    @property
    def waiting(self) -> int:
        """Requests without an answer that no worker has in hand."""
        return len(self._pending) - sum(len(lane.launch.requests) for lane in self._lanes if lane.launch)

    def waits_for(self, task: str) -> bool:
        """Whether a request for `task` has no answer yet."""
        return any(pending.request.task == task for pending in self._pending.values())

    @property
    def alive(self) -> bool:
        """Whether the scheduler is sound; once it broke the contract only a new process helps."""
        return self._broken is None

    @property
    def ready(self) -> bool:
        return self.alive and not self._stopping and any(lane.up for lane in self._lanes)

    async def start(self) -> None:
        """Return when every worker has run its model. Raises `WorkerError`."""
        await asyncio.gather(*(lane.start() for lane in self._lanes))

    async def submit(
        self,
        task: str,
        deadline: float,
        utility: float,
        payload: Any,
        length: int = 0,
        setting: int = 0,
        state: Any = None,
    ) -> Completed | Rejected:
        """Wait for an answer. `deadline` is in seconds from now; `length` and `setting` as in `Request`, `state` for `read`.

        Raises `SchedulerError` where the scheduler broke the contract, `WorkerError` after `stop`.
        """
        if self._broken:
            raise SchedulerError(self._broken)
        if self._stopping:
            raise WorkerError("the service is stopping")
        now = self._tick()
        request = Request(next(self._ids), now, now + deadline, task, utility, length, setting)
        answer: asyncio.Future[Completed | Rejected] = asyncio.get_running_loop().create_future()
        self._pending[request.id] = Pending(request, payload, answer, state)
        self._handle(Arrived(request), now)
        return await answer

    def change(self, facts: Mapping[str, Any], known: Any = None) -> None:
        """Replace what the scheduler goes by, in the journal as `Changed`; launches decided from now on name `known`.

        Raises `InputError` for facts that the scheduler refuses (nothing has changed then), `SchedulerError` where it
        breaks.
        """
        if self._broken:
            raise SchedulerError(self._broken)
        event, now = Changed(facts), self._tick()
        try:
            actions = self._scheduler.handle(event, now)
        except InputError:
            raise
        except Exception as error:  # our own bug, whatever its type
            raise SchedulerError(self._break(error)) from error
        self._known = known
        self._follow(event, actions, now)

    async def update(self, value: Any, build: Any) -> None:
        """Tell every worker something for all later launches, and how to build its model should it start again."""
        for lane in self._lanes:
            await lane.update(value, build)

    def remember(self, build: Any) -> None:
        """How every worker is to build its model should it start again."""
        for lane in self._lanes:
            lane.worker.remember(build)

    async def exchange(self, workers: Sequence[Worker], facts: Mapping[str, Any], known: Any = None) -> None:
        """Started workers take the places of the present ones, each between two launches; nothing that waits notices.

        With the first of them the facts change, so that on one worker both happen at one moment. (With more, a worker
        that still runs may be given a setting of the new facts.) Raises as `change`, and then nobody was exchanged.
        """
        first, *others = zip(self._lanes, workers, strict=True)

        def begin() -> Worker:
            self.change(facts, known)
            return first[0].exchange(first[1])

        former = [await first[0].when_free(begin)]
        for lane, worker in others:
            former.append(await lane.when_free(lambda lane=lane, worker=worker: lane.exchange(worker)))  # type: ignore[misc]
        await asyncio.gather(*(worker.stop() for worker in former))

    async def stop(self) -> None:
        """Answer everything in flight, then stop the workers."""
        self._stopping = True
        if self._pending:
            await asyncio.wait([pending.answer for pending in self._pending.values()], timeout=self._limits.drain)
        self._end(lambda: WorkerError(f"the service stopped before an answer came, after {self._limits.drain:.0f} s"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(lane.stop() for lane in self._lanes))

    def _tick(self) -> float:
        """Never back: a timer may fire a hair early, and its event then stands at the time it was set for."""
        self._last = max(self._last, self._clock())
        return self._last

    def _handle(self, event: Event, now: float) -> None:
        """One event in, its actions out. Whatever the scheduler does wrong ends in `_break`, never in silence."""
        if self._broken:
            return
        try:
            actions = self._scheduler.handle(event, now)
        except Exception as error:  # our own bug, whatever its type
            self._break(error)
            return
        self._follow(event, actions, now)

    def _follow(self, event: Event, actions: Sequence[Action], now: float) -> None:
        try:
            self._record(JournalEntry(now, event, tuple(actions)))
            # Launches first: behind the answers, each a response to be written, the device would idle for milliseconds.
            for action in sorted(actions, key=lambda one: not isinstance(one, Launch)):
                self._act(action, now)
            self._arm(event, now)
        except Exception as error:
            self._break(error)

    def _act(self, action: Action, now: float) -> None:
        match action:
            case Launch():
                self._launch(action, now)
            case Answer(request, launch, reason):
                pending = self._pending.pop(request)
                pending.settle(pending.served(launch, now, reason))
            case Drop(request, reason):
                self._pending.pop(request).settle(Rejected(reason))

    def _launch(self, launch: Launch, now: float) -> None:
        lane = self._lanes[launch.worker]
        if lane.launch is not None:
            raise SchedulerError(f"worker {launch.worker} got launch {launch.id} during launch {lane.launch.id}")
        payloads = [self._pending[request].payload for request in launch.requests]
        lane.launch = launch
        task = asyncio.create_task(self._carry_out(lane, Dispatched(launch, now, self._known), payloads))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, lane: WorkerSlot, decided: Dispatched, payloads: list[Any]) -> None:
        event, outputs = await lane.carry_out(decided.launch, payloads)
        if isinstance(event, Finished):
            event = self._take_in(event, decided, outputs)
        lane.act_between()
        self._handle(event, self._tick())

    def _take_in(self, event: Finished, decided: Dispatched, outputs: Sequence[Any]) -> Finished:
        """Keep the outputs, and let `read` say what they mean to the scheduler."""
        results = []
        for result, output in zip(event.results, outputs, strict=True):
            pending = self._pending.get(result.request)
            if pending is not None:
                pending.ran[decided.launch.id] = LaunchResult(output, decided, event.seconds)
                result = self._read_one(pending, result)
            results.append(result)
        return replace(event, results=tuple(results))

    def _read_one(self, pending: Pending, result: Result) -> Result:
        try:
            return self._read(pending, result)
        except Exception as error:  # our own bug, but no reason to fail all the others
            logger.error("the output of request %d could not be read", result.request, exc_info=error)
            pending.fail(error)
            return result

    def _arm(self, event: Event, now: float) -> None:
        """One timer for the whole scheduler."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake = self._scheduler.wake_at()
        if wake is None:
            return
        if isinstance(event, Woke) and wake <= now:
            raise SchedulerError(f"after Woke at {now} the scheduler asks to be woken at {wake}, which is not later")
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wake - self._clock()), self._wake, wake)

    def _wake(self, wake: float) -> None:
        self._timer = None
        self._last = max(self._last, wake)
        self._handle(Woke(), self._tick())

    def _break(self, error: Exception) -> str:
        logger.error("the scheduler failed; all requests are refused from now on", exc_info=error)
        self._broken = f"the scheduler failed: {type(error).__name__}: {error}"
        broken = self._broken
        self._end(lambda: SchedulerError(broken))
        return broken

    def _end(self, exception: Callable[[], Exception]) -> None:
        """Leave no request without an answer. Each gets its own exception: a shared one collects all tracebacks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in self._pending.values():
            pending.fail(exception())
        self._pending.clear()
