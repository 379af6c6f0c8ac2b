"""Runs a scheduler on an asyncio event loop: takes requests, sends launches to workers and gives answers.

The driver keeps the clock and the pending requests, and decides nothing. It records every event and every action, so that
`replay` of the journal gives the same decisions. Each submitted request is answered exactly once: with an output, with a
rejection, or with an exception if the scheduler itself failed. A scheduler that fails is replaced by a fresh one, which is
given what is pending (see recovery.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from pliant.errors import InputError, SchedulerError, WorkerError
from pliant.fallbacks import Fallback
from pliant.protocol import (
    Action,
    Answer,
    Arrived,
    Cancelled,
    Changed,
    Drop,
    Event,
    Finished,
    JournalEntry,
    Launch,
    Limited,
    Request,
    Restarted,
    Result,
    Scheduler,
    Woke,
)
from pliant.serving.answers import (
    AnswerRate,
    Completed,
    Dispatched,
    LaunchResult,
    Pending,
    Rejected,
    judged,
    settle_what_ran,
)
from pliant.serving.client import ANYBODY, Client
from pliant.serving.clock import Clock
from pliant.serving.recovery import Recovery
from pliant.serving.request_context import current_trace, current_way_back
from pliant.serving.tracing.traced import add_launches
from pliant.serving.workers.spares import Spares
from pliant.serving.workers.worker import Rebuild, Worker
from pliant.serving.workers.worker_slot import WorkerSlot

logger = logging.getLogger("pliant.serving")

Record = Callable[[JournalEntry], None]
Read = Callable[[Pending, Result], Result]


@dataclass(frozen=True, slots=True)
class Limits:
    launch: float = 60.0  # seconds after which a launch counts as hung and its worker is killed
    drain: float = 120.0  # seconds that `stop` waits for pending requests
    ahead: bool = False  # whether a worker may be given its next batch while one runs


class Driver:
    """Serves any number of asyncio tasks of one event loop, which call `submit` between `start` and `stop`."""

    def __init__(
        self,
        scheduler: Scheduler,
        workers: Sequence[Worker],
        record: Record,
        clock: Clock,
        limits: Limits = Limits(),
        died: Callable[[], None] = lambda: None,
        read: Read = lambda _pending, result: result,
        facts: Mapping[str, Any] | None = None,
        factory: Callable[[], Scheduler] | None = None,
        spares: Sequence[Worker] = (),
    ) -> None:
        """`facts`, if given, are the scheduler's first event, so that the journal holds what the scheduler knows.
        `died` is called for each worker that dies while idle; the worker is then restarted.

        `read` is called with every pending request after each of its launches. It returns the result for the scheduler,
        and may change the payload of the next launch. If it raises, the request fails with that exception.

        `factory` makes a scheduler equal to `scheduler` before its first event, for when that one fails. Without it
        every request gets an error from then on.
        `spares` stand by to take the place of a worker that dies or hangs.
        """
        self._scheduler, self._record, self._clock, self._limits = scheduler, record, clock, limits
        self._read, self._facts = read, facts
        self._spares = Spares(spares)
        self._slots = [WorkerSlot(worker, limits.launch, died, self._spares) for worker in workers]
        self._pending: dict[int, Pending] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = count()
        self._last = 0.0
        self._rate = AnswerRate()
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._broken: str | None = None
        self._factory, self._recovery = factory, Recovery()
        self._generation = 0  # of schedulers
        self._abandoned: list[Launch] = []  # launches of former schedulers
        self._batches: dict[int, int] = {}  # setting -> requests of a launch that run at once, where memory lacked
        self._started = False

    @property
    def now(self) -> float:
        """Return the present time in seconds, on the clock of deadlines and journal."""
        return self._clock()

    @property
    def scheduler(self) -> Scheduler:
        """Return the present scheduler."""
        return self._scheduler

    @property
    def pending(self) -> int:
        """Return the number of requests without an answer."""
        return len(self._pending)

    @property
    def waiting(self) -> int:
        """Return the number of requests without an answer that are in no running launch."""
        launched = sum(len(launch.requests) for slot in self._slots for launch in slot.in_flight)
        return max(0, len(self._pending) - launched)

    @property
    def up(self) -> list[bool]:
        """Return of each worker whether it is up; one that has died is not, until it is restarted."""
        return [slot.up for slot in self._slots]

    @property
    def fallbacks(self) -> list[Sequence[Fallback]]:
        """Return of each worker what its device process has fallen back to since it was started."""
        return [slot.worker.fallbacks for slot in self._slots]

    @property
    def spares(self) -> int:
        """Return how many spare workers stand by."""
        return self._spares.ready

    @property
    def alive(self) -> bool:
        """Whether the scheduler works. One that has failed needs a new service process."""
        return self._broken is None

    @property
    def ready(self) -> bool:
        """Whether requests can be answered: at least one worker is up."""
        return self.alive and not self._stopping and any(slot.up for slot in self._slots)

    async def start(self) -> None:
        """Return when every worker has run its model. Raises `WorkerError`, and what `change` raises."""
        await asyncio.gather(*(slot.start() for slot in self._slots))
        self._spares.start()
        if self._facts is not None:
            self.change(self._facts)
        self._started = True
        self._repeat_limits()

    async def submit(
        self,
        task: str,
        deadline: float,
        utility: float,
        payload: Any,
        length: int = 0,
        setting: int = 0,
        state: Any = None,
        client: Client = ANYBODY,
    ) -> Completed | Rejected:
        """Wait for the answer to a request.

        `deadline` is in seconds from now; `length` and `setting` are as in `Request`; `state` is for `read`; `client`
        is who asks. If the waiting task is cancelled the scheduler gets `Cancelled`, and does no more for the request.

        Raises `SchedulerError` if the scheduler has failed, `WorkerError` after `stop`.
        """
        if self._broken:
            raise SchedulerError(self._broken)
        if self._stopping:
            raise WorkerError("the service is stopping")
        now = self._tick()
        tenant, weight = client.tenant, client.weight
        request = Request(next(self._ids), now, now + deadline, task, utility, length, setting, tenant, weight)
        answer: asyncio.Future[Completed | Rejected] = asyncio.get_running_loop().create_future()
        self._pending[request.id] = Pending(request, payload, answer, state, way_back=current_way_back())
        if self._recovery.takes(request.id):
            self._refill_soon()
        else:
            self._handle(Arrived(request), now)
        try:
            ending = judged(await answer, self._clock() - request.deadline)
        except asyncio.CancelledError:
            if self._pending.pop(request.id, None) is not None and not self._recovery.forget(request.id):
                self._handle(Cancelled(request.id), self._tick())
            raise
        if traced := current_trace():
            add_launches(traced, request, ending, self._clock())
        return ending

    def change(self, facts: Mapping[str, Any]) -> None:
        """Replace what the scheduler knows (profiles, tasks); the journal records it as `Changed`.

        Raises `InputError` for facts that the scheduler rejects (then nothing changes), `SchedulerError` if it fails.
        """
        if self._broken:
            raise SchedulerError(self._broken)
        event, now = Changed(facts), self._tick()
        try:
            actions = self._scheduler.handle(event, now)
        except InputError:
            raise
        except Exception as error:  # a bug of ours, whatever its type
            self._fail(error, event)
            raise SchedulerError(f"the scheduler failed: {type(error).__name__}: {error}") from error
        self._facts = facts
        self._follow(event, actions, now)

    def limit(self, setting: int, batch: int) -> None:
        """Give the scheduler the event `Limited`, unless it knows of a limit that is no higher."""
        if batch < self._batches.get(setting, batch + 1):
            self._batches[setting] = batch
            if self._started:
                self._handle(Limited(setting, batch), self._tick())

    def _repeat_limits(self) -> None:
        for setting, batch in self._batches.items():
            self._handle(Limited(setting, batch), self._tick())

    async def update(self, value: Any, rebuild: Rebuild) -> None:
        """Send an update of the model to every worker. `rebuild` gives the build of the updated model for a restart."""
        for slot in self._slots:
            await slot.update(value, rebuild)
        await self._spares.update(value, rebuild)

    def remember(self, rebuild: Rebuild) -> None:
        """Change the build that every worker uses if it is restarted."""
        for slot in self._slots:
            slot.worker.remember(rebuild(slot.worker.build))
        self._spares.remember(rebuild)

    async def stop(self) -> None:
        """Answer all pending requests, then stop the workers."""
        self._stopping = True
        if self._pending:
            await asyncio.wait([pending.answer for pending in self._pending.values()], timeout=self._limits.drain)
        self._end(lambda: WorkerError(f"the service stopped before an answer came, after {self._limits.drain:.0f} s"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(slot.stop() for slot in self._slots), self._spares.stop())

    def _tick(self) -> float:
        """Return the present time, which never goes back: a timer may fire a moment before the time that it was set for."""
        self._last = max(self._last, self._clock())
        return self._last

    def _handle(self, event: Event, now: float) -> None:
        """Give the scheduler an event and carry out its actions. Any error of the scheduler ends in `_fail`."""
        if self._broken:
            return
        try:
            actions = self._scheduler.handle(event, now)
        except Exception as error:  # a bug of ours, whatever its type
            self._fail(error, event)
            return
        self._follow(event, actions, now)

    def _follow(self, event: Event, actions: Sequence[Action], now: float) -> None:
        try:
            self._record(JournalEntry(now, event, tuple(actions)))
            # Launches go first: writing the answers takes milliseconds, in which the device would idle.
            for action in sorted(actions, key=lambda action: not isinstance(action, Launch)):
                self._act(action, now)
            self._arm(event, now)
        except Exception as error:
            self._fail(error, event)

    def _act(self, action: Action, now: float) -> None:
        if self._recovery.note(action):
            self._refill_soon()
        match action:
            case Launch():
                self._launch(action, now)
            case Answer(request, launch, reason):
                pending = self._pending.pop(request)
                self._rate.count(now)
                pending.settle(pending.completed(launch, now, reason), self._clock() - now)
            case Drop(request, reason):
                pending = self._pending.pop(request)
                pending.settle(Rejected(reason, self._rate.seconds(len(self._pending), now)), self._clock() - now)

    def _launch(self, launch: Launch, now: float) -> None:
        slot = self._slots[launch.worker]
        payloads = [self._pending[request].payload for request in launch.requests]
        slot.take(launch, self._limits.ahead, self._abandoned)
        task = asyncio.create_task(self._carry_out(slot, Dispatched(launch, now), payloads, self._generation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, slot: WorkerSlot, dispatched: Dispatched, payloads: list[Any], generation: int) -> None:
        event, outputs = await slot.carry_out(dispatched.launch, payloads)
        if generation != self._generation:  # its scheduler has failed meanwhile: its requests wait again
            return
        if isinstance(event, Finished):
            event = self._take_in(event, dispatched, outputs)
        self._handle(event, self._tick())

    def _take_in(self, event: Finished, dispatched: Dispatched, outputs: Sequence[Any]) -> Finished:
        """Store the outputs, and return the event with the results that `read` gives for them."""
        results, ended = [], self._clock()
        for result, output in zip(event.results, outputs, strict=True):
            pending = self._pending.get(result.request)
            if pending is not None:
                pending.launches[dispatched.launch.id] = LaunchResult(output, dispatched, event.seconds, ended)
                result = self._read_one(pending, result)
            results.append(result)
        return replace(event, results=tuple(results))

    def _read_one(self, pending: Pending, result: Result) -> Result:
        try:
            return self._read(pending, result)
        except Exception as error:  # a bug of ours, but no reason to fail the other requests
            logger.error("the output of request %d could not be read", result.request, exc_info=error)
            pending.fail(error)
            return result

    def _arm(self, event: Event, now: float) -> None:
        """Set the one timer of the scheduler to its next wake-up."""
        self._disarm()
        wake = self._scheduler.wake_at()
        if wake is None:
            return
        if isinstance(event, Woke) and wake <= now:
            raise SchedulerError(f"after Woke at {now} the scheduler asks to be woken at {wake}, which is not later")
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wake - self._clock()), self._wake, wake)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self, wake: float) -> None:
        self._timer = None
        self._last = max(self._last, wake)
        self._handle(Woke(), self._tick())

    def _fail(self, error: Exception, event: Event) -> None:
        """Replace a scheduler that has raised an error over an event, and let what is pending wait for the new one."""
        if self._factory is None or self._recovery.is_hopeless(len(self._pending)):
            self._break(error)
            return
        reason = f"{type(error).__name__}: {error}"
        logger.error("the scheduler failed over %r; a fresh one goes on", event, exc_info=error)
        self._disarm()
        self._generation += 1
        self._abandoned = [launch for slot in self._slots for launch in slot.in_flight]
        self._scheduler, now = self._factory(), self._tick()
        actions = settle_what_ran(self._pending, now)
        culprit = self._recovery.begin(event, self._pending)
        if culprit is not None:
            actions.append(Drop(culprit, "failed"))
            self._pending.pop(culprit).fail(SchedulerError(f"the scheduler failed twice over this request: {reason}"))
        self._record(JournalEntry(now, Restarted(reason), tuple(actions)))
        if self._facts is not None:
            self._handle(Changed(self._facts), now)
        self._repeat_limits()
        self._refill_soon()

    def _refill_soon(self) -> None:
        """Go on with what waits for a fresh scheduler, in a turn of its own: it may fail over that, too."""
        asyncio.get_running_loop().call_soon(self._refill, self._generation)

    def _refill(self, generation: int) -> None:
        while generation == self._generation and not self._broken:
            request = self._recovery.next()
            if request is None:
                return
            if request in self._pending:
                self._handle(Arrived(self._pending[request].request), self._tick())

    def _break(self, error: Exception) -> None:
        logger.error("the scheduler failed; every request gets an error from now on", exc_info=error)
        broken = self._broken = f"the scheduler failed: {type(error).__name__}: {error}"
        self._end(lambda: SchedulerError(broken))

    def _end(self, exception: Callable[[], Exception]) -> None:
        """Fail all pending requests, each with an exception of its own: a shared one would collect all tracebacks."""
        self._disarm()
        for pending in self._pending.values():
            pending.fail(exception())
        self._pending.clear()
