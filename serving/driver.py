"""Runs a scheduler on an asyncio event loop: takes requests, sends launches to workers and gives answers.

The driver keeps the clock and the pending requests, and decides nothing. It records every event and every action, so that
`replay` of the journal gives the same decisions. Each submitted request is answered exactly once: with an output, with a
rejection, or with an exception if the scheduler itself failed. A scheduler that fails is replaced by a fresh one, which is
given what is pending (see `Recovery`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from pliant.serving.client import ANYBODY, Client
from pliant.serving.request_context import REQUEST_ID, WayBack, current_trace, current_way_back, holding
from pliant.serving.tracing.traced import Traced, zero_of
from pliant.serving.workers.worker import Rebuild, Worker
from pliant.serving.workers.worker_slot import Spares, WorkerSlot

logger = logging.getLogger("pliant.serving")

RATE_MEMORY = 10.0  # seconds, the time constant of the mean of answers per second
BLAMES = 2  # failures of the scheduler over one request, after which it is given up
ENDLESS = 10  # failures without an answer, beyond two a pending request, after which no fresh scheduler is made
LEAP = 3600.0  # seconds that the machine's clock may be ahead of the time that has passed
PATIENCE = 3600.0  # seconds after which a longer leap is believed

Clock = Callable[[], float]
Record = Callable[[JournalEntry], None]


def loop_clock() -> Clock:
    """Return a clock that counts the seconds since this call, and runs with the timers of the present event loop."""
    loop = asyncio.get_running_loop()
    origin = loop.time()
    return lambda: loop.time() - origin


class PatientClock:
    """Gives seconds since 1970, by the machine's clock, which may be set.

    A clock that is set back is followed at once: nothing grows old by it. One that leaps ahead is followed after an hour:
    until then time passes as usual, and if it is set back meanwhile, nothing has happened. A machine that slept (its clock
    leaps, too) is followed an hour after it woke.
    """

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` gives seconds since any moment, and is never set."""
        self._clock, self._steady = clock, steady
        self._at, self._passed = clock(), steady()  # when the clock was last followed
        self._leapt: float | None = None

    def __call__(self) -> float:
        at, passed = self._clock(), self._steady()
        expected = self._at + passed - self._passed
        if at > expected + LEAP:
            self._leapt = passed if self._leapt is None else self._leapt
            if passed - self._leapt < PATIENCE:
                return expected
        self._at, self._passed, self._leapt = at, passed, None
        return at


@dataclass(frozen=True, slots=True)
class Completed:
    """An output and how it came about.

    `queue_seconds`: from arrival until its launch was decided; `run_seconds`: on the device, by the device's clock.
    """

    output: Any
    setting: int
    batch: int
    queue_seconds: float
    run_seconds: float
    late_by: float  # seconds after the deadline; negative: before it
    reason: str = ""  # why a further launch that was wanted did not happen, see protocol.Drop
    launches: tuple[LaunchResult, ...] = ()  # all its launches, in order

    @property
    def on_time(self) -> bool:
        """Whether the deadline was met."""
        return self.late_by <= 0

    @property
    def outcome(self) -> str:
        """Return how the request ended, as a label of the metrics."""
        return "on_time" if self.on_time else "late"


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request gets no output, for a reason of protocol.Drop.

    `retry_after`: seconds in which the requests that wait now are probably answered.
    """

    reason: str
    retry_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A launch, and when the scheduler decided it (`at`, on the driver's clock)."""

    launch: Launch
    at: float


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What one launch gave one request, `ended` on the driver's clock; `seconds`: the whole launch's on the device."""

    output: Any
    dispatched: Dispatched
    seconds: float
    ended: float


@dataclass(slots=True)
class Pending:
    """A request without an answer yet."""

    request: Request
    payload: Any  # what the next launch sends to the device
    answer: asyncio.Future[Completed | Rejected]
    state: Any = None  # the system's own, kept from one launch to the next
    launches: dict[int, LaunchResult] = field(default_factory=dict)  # by launch id
    way_back: WayBack | None = None
    name: str = ""  # by which the client knows it

    @property
    def last(self) -> LaunchResult:
        """Return the result of the latest launch that succeeded."""
        return next(reversed(self.launches.values()))

    def settle(self, answer: Completed | Rejected, ago: float = 0.0) -> None:
        """Give the answer, which was decided `ago` seconds ago, to whoever waits for it."""
        if self.way_back is not None:
            self.way_back.decided(ago)
        if not self.answer.done():  # the client may have disconnected
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Raise the error in whoever waits for the answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def completed(self, launch: int, now: float, reason: str = "") -> Completed:
        """Return the answer that the output of a launch gives at `now`."""
        result = self.launches[launch]
        dispatched = result.dispatched
        queued, late_by = dispatched.at - self.request.arrival, now - self.request.deadline
        batch, setting = len(dispatched.launch.requests), dispatched.launch.setting
        all_results = tuple(self.launches.values())
        return Completed(result.output, setting, batch, queued, result.seconds, late_by, reason, all_results)


class AnswerRate:
    """An exponentially weighted mean of answers per second. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._rate, self._at = 0.0, 0.0

    def count(self, now: float) -> None:
        """An answer was given."""
        self._rate = self._decayed(now) + 1 / RATE_MEMORY
        self._at = now

    def seconds(self, waiting: int, now: float) -> float:
        """Return the seconds in which so many requests are probably answered: at least 1, also if none was lately."""
        rate = self._decayed(now)
        return max(1.0, waiting / rate) if rate > 0.01 else 1.0

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / RATE_MEMORY)


class Recovery:
    """The requests that wait for a fresh scheduler after one has failed, and whom former failures are blamed on.

    If an arrival made it fail, that request is to blame, and the others arrive again before it. If something else did,
    nobody knows which request is to blame: they arrive one by one, each when the former has been launched or has its
    answer. A request that is blamed twice is given up.
    """

    def __init__(self) -> None:
        self._held: deque[int] = deque()
        self._blamed: dict[int, int] = {}  # failures, by request
        self._apart = False  # one by one
        self._trial: int | None = None  # the one that was given last, while it waits
        self._failures = 0  # since the latest answer

    def is_hopeless(self, pending: int) -> bool:
        """Count a failure, and return whether there were too many without an answer between them."""
        self._failures += 1
        return self._failures > 2 * pending + ENDLESS

    def begin(self, event: Event, pending: Iterable[int]) -> int | None:
        """Hold all pending requests after a failure over `event`. Return the request that is to be given up, if any."""
        culprit = event.request.id if isinstance(event, Arrived) else self._trial
        self._trial = None
        if culprit is None:
            self._apart = True
        else:
            self._blamed[culprit] = self._blamed.get(culprit, 0) + 1
        present = set(pending)
        self._blamed = {id: count for id, count in self._blamed.items() if id in present}
        given_up = culprit if culprit is not None and self._blamed.get(culprit, 0) >= BLAMES else None
        present.discard(-1 if given_up is None else given_up)
        self._held = deque(sorted(present, key=lambda id: (self._blamed.get(id, 0), id)))
        return given_up

    def next(self) -> int | None:
        """Return the request that arrives next at the fresh scheduler; None for now, or if there is none."""
        if self._apart and self._trial is not None:
            return None
        if not self._held:
            self._apart = False
            return None
        request = self._held.popleft()
        self._trial = request if self._apart else None
        return request

    def takes(self, request: int) -> bool:
        """Hold a new request behind those that wait for the fresh scheduler, and return whether any do."""
        if not self._held:
            return False
        self._held.append(request)
        return True

    def note(self, action: Action) -> bool:
        """Note an action of the scheduler. Return whether the next request can arrive because of it."""
        if isinstance(action, Launch):
            over = self._trial in action.requests
        else:
            self._failures, over = 0, self._trial == action.request
        if over:
            self._trial = None
        return over

    def forget(self, request: int) -> bool:
        """Note that the client of a request has left. Return whether the scheduler does not know the request."""
        if request in self._held:
            self._held.remove(request)
            return True
        if self._trial == request:
            self._trial = None
        return False


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
        self.scheduler, self._record, self._clock, self._limits = scheduler, record, clock, limits
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
    def devices(self) -> int:
        """Return how many workers are up."""
        return sum(self.up)

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
        way_back, name = current_way_back(), REQUEST_ID.get()
        self._pending[request.id] = Pending(request, payload, answer, state, way_back=way_back, name=name)
        if self._recovery.takes(request.id):
            self._refill_soon()
        else:
            self._handle(Arrived(request), now)
        try:
            ending = await answer
            if isinstance(ending, Completed):  # the event loop may have had other work since it was given
                ending = replace(ending, late_by=self._clock() - request.deadline)
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
            actions = self.scheduler.handle(event, now)
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
            slot.worker.build = rebuild(slot.worker.build)
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
            actions = self.scheduler.handle(event, now)
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
            results, ended = [], self._clock()
            for result, output in zip(event.results, outputs, strict=True):
                pending = self._pending.get(result.request)
                if pending is not None:
                    pending.launches[dispatched.launch.id] = LaunchResult(output, dispatched, event.seconds, ended)
                    try:
                        result = self._read(pending, result)
                    except Exception as error:  # a bug of ours, but no reason to fail the other requests
                        logger.error("the output of request %d could not be read", result.request, exc_info=error)
                        pending.fail(error)
                results.append(result)
            event = replace(event, results=tuple(results))
        self._handle(event, self._tick())

    def _arm(self, event: Event, now: float) -> None:
        """Set the one timer of the scheduler to its next wake-up."""
        self._disarm()
        wake = self.scheduler.wake_at()
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
            logger.error("the scheduler failed; every request gets an error from now on", exc_info=error)
            broken = self._broken = f"the scheduler failed: {type(error).__name__}: {error}"
            self._end(lambda: SchedulerError(broken))
            return
        reason = f"{type(error).__name__}: {error}"
        logger.error("the scheduler failed over %r; a fresh one goes on", event, exc_info=error)
        self._disarm()
        self._generation += 1
        self._abandoned = [launch for slot in self._slots for launch in slot.in_flight]
        self.scheduler, now = self._factory(), self._tick()
        actions: list[Action] = []
        for id, pending in list(self._pending.items()):  # no launch of the former scheduler is known any more
            if pending.launches and not pending.answer.done():
                ran = pending.last.dispatched.launch.id
                actions.append(Answer(id, ran, "failed"))
                self._pending.pop(id).settle(pending.completed(ran, now, "failed"))
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

        def refill(generation: int) -> None:
            while generation == self._generation and not self._broken:
                request = self._recovery.next()
                if request is None:
                    return
                if (pending := self._pending.get(request)) is not None:
                    with holding(REQUEST_ID, pending.name):  # not that of whose launch the scheduler failed over
                        self._handle(Arrived(pending.request), self._tick())

        asyncio.get_running_loop().call_soon(refill, self._generation)

    def _end(self, exception: Callable[[], Exception]) -> None:
        """Fail all pending requests, each with an exception of its own: a shared one would collect all tracebacks."""
        self._disarm()
        for pending in self._pending.values():
            pending.fail(exception())
        self._pending.clear()


def add_launches(traced: Traced, request: Request, answer: Completed | Rejected, now: float) -> None:
    """Add the spans of a request that has its answer; times are of the driver's clock, which says `now`."""
    since, task, zero = request.arrival, {"pliant.task": request.task}, zero_of(now)
    if isinstance(answer, Rejected):
        traced.add("queue", since, now, zero, task | {"pliant.dropped": answer.reason})
        return
    for result in answer.launches:
        launch, begun, ended = result.dispatched.launch, result.dispatched.at, result.ended
        traced.add("queue", since, begun, zero, task)
        values = task | {
            "pliant.setting": launch.setting,
            "pliant.batch_size": len(launch.requests),
            "pliant.worker": launch.worker,
        }
        traced.add("launch", begun, ended, zero, values).add(
            "device", max(begun, ended - result.seconds), ended, zero, {"pliant.device_seconds": result.seconds}
        )
        since = ended
