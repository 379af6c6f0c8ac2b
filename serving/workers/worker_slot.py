"""One worker as the driver sees it: its launches, whether it is up, and its restart when it dies idle.

Beside the present launch there may be a next one, which is sent to the worker while the present one runs.

A launch may take as long as its profile says, by a factor and never below a floor, before its worker counts as hung. The
floors do not come from the speed of a machine: `FLOOR` is what an operating system under load may hold up a process that
is ready to run, `FIRST` what kernels chosen at the first run of a model, or memory that was swapped out while nothing
ran, may add. An event loop that is held up itself does not count as time: see `within`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pliant.errors import SchedulerError, WorkerError
from pliant.protocol import Failed, Finished, Launch, Result
from pliant.serving.workers.worker import ModelError, Rebuild, Worker

FLOOR = 2.0  # seconds that any launch may take
FIRST = 10.0  # the same for the first launch of a setting since the worker's start, and after a pause of `IDLE`
FACTOR = 10.0  # times the seconds that the scheduler expects
IDLE = 60.0  # seconds without a launch after which a worker's memory may have been swapped out
SLICES = 8  # parts of a limit that are waited for one by one

MAX_ERRORS = 16  # of the model, one after the other without a success, after which its process counts as lost
RETRY_SECONDS = 1.0  # between two attempts to start a worker that died idle, or a spare

T = TypeVar("T")
End = tuple[Finished | Failed, Sequence[Any]]
"""How a launch ended, and one output per request (none if it failed)."""
logger = logging.getLogger("pliant.serving")


class Spares:
    """The workers of a driver that stand by with their models loaded; they are started in the background.

    One of them takes the place of a worker with an equal build that died or hung. That one is restarted in the background
    and stands by from then on.
    """

    def __init__(self, workers: Sequence[Worker] = ()) -> None:
        self._workers = list(workers)  # all that stand by or are being started
        self._ready: list[Worker] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> int:
        """Return how many spares stand by."""
        return len(self._ready)

    def start(self) -> None:
        """Begin to start all spares."""
        for worker in self._workers:
            self._start_soon(worker)

    def take(self, former: Worker) -> Worker | None:
        """Return a worker that takes the place of `former`, which becomes a spare; None if none stands by for it."""
        spare = next((worker for worker in self._ready if worker.build == former.build), None)
        if spare is None:
            return None
        self._ready.remove(spare)
        self._workers.remove(spare)
        self._workers.append(former)
        self._start_soon(former)
        return spare

    async def update(self, value: Any, rebuild: Rebuild) -> None:
        """Send an update of the model to every spare that stands by; the others are started with it."""
        for worker in self._workers:
            build = rebuild(worker.build)
            if worker not in self._ready:
                worker.build = build
                continue
            self._ready.remove(worker)  # it cannot serve during the call
            try:
                await worker.update(value, build)
                self._ready.append(worker)
            except WorkerError as error:
                logger.error("a spare worker is started again: %s", error)
                worker.build = build
                self._start_soon(worker)

    def remember(self, rebuild: Rebuild) -> None:
        """Change the build that every spare uses if it is started again."""
        for worker in self._workers:
            worker.build = rebuild(worker.build)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.stop() for worker in self._workers))

    def _start_soon(self, worker: Worker) -> None:
        worker.on_end = None
        task = asyncio.create_task(self._start(worker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, worker: Worker) -> None:
        while True:
            build = worker.build
            try:
                await worker.restart()
            except WorkerError as error:
                logger.error("a spare worker could not be started: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if worker.build == build:  # no update came meanwhile
                break
        worker.on_end = lambda: self._ended(worker)
        self._ready.append(worker)
        logger.warning("a spare worker stands by")

    def _ended(self, worker: Worker) -> None:
        """Start a spare again that died while it stood by."""
        if worker in self._ready:
            logger.error("a spare worker died; it is started again")
            self._ready.remove(worker)
            self._start_soon(worker)


class LaunchLimit:
    """The limit of one worker's launches; `most` seconds are the most, and the limit where nothing is expected."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._ran: set[int] = set()  # settings that have run since the worker's start
        self._last = float("-inf")  # when the last launch ended

    def seconds(self, launch: Launch, now: float) -> float:
        """Return how many seconds a launch that begins `now` may take."""
        if launch.expected <= 0:
            return self._most
        usual = launch.setting in self._ran and now - self._last < IDLE
        return min(self._most, max(FLOOR if usual else FIRST, FACTOR * launch.expected))

    def finished(self, launch: Launch, now: float) -> None:
        """Note that a launch has ended well."""
        self._ran.add(launch.setting)
        self._last = now

    def started(self) -> None:
        """Note that the worker's process is a new one, in which nothing has run but its warm-up."""
        self._ran.clear()


async def within(seconds: float, call: Awaitable[T]) -> T:
    """Return what the call returns. Raises `TimeoutError` if it takes longer, and what the call raises.

    The time is counted in parts. So an event loop that was held up for longer, as by a machine that stood still, has
    lost one part when it goes on, and finds the result that has come meanwhile.
    """
    async with asyncio.timeout(None) as timeout:
        parts = _Parts(seconds / SLICES, timeout)
        try:
            return await call
        finally:
            parts.end()


class _Parts:
    """Waits `SLICES` times for a part of a limit, in seconds, and then for its timeout at once.

    No function that calls itself: it would hold the call's task until the garbage collector comes, which would come for
    every few hundred requests.
    """

    def __init__(self, part: float, timeout: asyncio.Timeout) -> None:
        self._loop, self._part, self._timeout = asyncio.get_running_loop(), part, timeout
        self._left = SLICES - 1
        self._timer = self._loop.call_later(part, self._next)

    def _next(self) -> None:
        if self._left > 0:
            self._left -= 1
            self._timer = self._loop.call_later(self._part, self._next)
        else:
            self._timeout.reschedule(self._loop.time())

    def end(self) -> None:
        self._timer.cancel()


@dataclass(slots=True, eq=False)
class WorkerSlot:
    """A worker with its present launch, and the next one where the scheduler decides ahead."""

    worker: Worker
    limit: float  # the most seconds of a launch, and its limit where none are expected (see `LaunchLimit`)
    died: Callable[[], None]  # called when the worker dies idle, which no launch reports
    spares: Spares = field(default_factory=Spares)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # keeps updates between launches
    launch: Launch | None = None
    next: Launch | None = None
    up: bool = False
    begun: Launch | None = None  # the latest that the worker was called for
    updates: int = 0  # that wait for their turn or are being sent
    reviving: asyncio.Task[None] | None = None
    errors: int = 0  # of the model since its last success
    limits: LaunchLimit = field(init=False)

    def __post_init__(self) -> None:
        self.limits = LaunchLimit(self.limit)

    @property
    def in_flight(self) -> list[Launch]:
        return [launch for launch in (self.launch, self.next) if launch is not None]

    def take(self, launch: Launch, ahead: bool, abandoned: Sequence[Launch] = ()) -> None:
        """Make a launch the present one, or with `ahead` the next one while a batch runs; the caller carries it out.

        Launches in `abandoned`, whose scheduler has failed, do not count. Raises `SchedulerError` for one too many.
        """
        present = None if any(self.launch is former for former in abandoned) else self.launch
        if present is None:
            self.launch, self.next = launch, None
        elif ahead and self.next is None and launch.kind == present.kind == "run":
            self.next = launch
        else:
            raise SchedulerError(f"worker {launch.worker} was given launch {launch.id} during launch {present.id}")

    async def start(self) -> None:
        await self.worker.start()
        self.worker.on_end = self._on_worker_end
        self.up = True

    async def stop(self) -> None:
        if self.reviving is not None:
            self.reviving.cancel()
            with suppress(asyncio.CancelledError):
                await self.reviving
        await self.worker.stop()

    async def update(self, value: Any, rebuild: Rebuild) -> None:
        """Send an update between two launches. It is not cancelled halfway: that would break the message stream."""

        async def send() -> None:
            self.updates += 1
            try:
                async with self.lock:
                    await self.worker.update(value, rebuild(self.worker.build))
            finally:
                self.updates -= 1

        await asyncio.shield(asyncio.ensure_future(send()))

    async def carry_out(self, launch: Launch, payloads: Sequence[Any]) -> End:
        """Run a launch and return how it ended. Raises nothing but cancellation: the scheduler decides on failures."""
        if self.launch is None:
            self.launch = launch
        try:
            if not self.up and launch.kind != "restart":  # it is being restarted; the requests need not wait
                return Failed(launch.id, "the worker died while idle"), ()
            follows = self.next is launch
            # Sent behind the present one, unless anything else comes in between.
            ahead = follows and self.begun is self.launch and not self.updates and self.up
            sent = ahead and self.worker.send_ahead(launch.setting, payloads)
            async with self.lock:
                if follows and not self.up:
                    return Failed(launch.id, "the worker was lost in the launch before"), ()
                if self.launch is not launch and not sent:  # its scheduler has failed, a fresh one launched another
                    return Failed(launch.id, "its scheduler has failed", lost=False), ()
                match launch.kind:
                    case "restart":  # unless it was already restarted while idle
                        started = time.monotonic()
                        if not self.up:
                            await self._bring_up()
                        seconds = time.monotonic() - started
                        logger.warning("worker %d is up again after %.1f s", launch.worker, seconds)
                        return Finished(launch.id, seconds), ()
                    case "load":
                        return Finished(launch.id, await self.worker.load(launch.setting)), ()
                return await self._run(launch, payloads)
        except ModelError as error:
            # The process lives and its requests may be to blame, so nothing is restarted. But a process that does nothing
            # but fail is not trusted, and neither is one that failed to load a model.
            self.errors += 1
            if launch.kind != "run" or self.errors >= MAX_ERRORS:
                return self._failed(launch, error), ()
            logger.warning("the model of worker %d failed in launch %d: %s", launch.worker, launch.id, error)
            return Failed(launch.id, str(error), lost=False), ()
        except Exception as error:
            return self._failed(launch, error), ()
        finally:
            if self.launch is launch:  # another one may be in its place, where a scheduler was restarted
                self.launch, self.next = self.next, None
            elif self.next is launch:
                self.next = None

    async def _run(self, launch: Launch, payloads: Sequence[Any]) -> End:
        loop = asyncio.get_running_loop()
        limit, self.begun = self.limits.seconds(launch, loop.time()), launch
        try:
            outputs, seconds = await within(limit, self.worker.run(launch.setting, payloads))
        except TimeoutError:
            raise WorkerError(f"it was still running after {limit:g} s") from None
        self.limits.finished(launch, loop.time())
        self.errors = 0
        if len(outputs) != len(payloads):
            raise WorkerError(f"the worker returned {len(outputs)} outputs for {len(payloads)} requests")
        return Finished(launch.id, seconds, tuple(Result(request) for request in launch.requests)), outputs

    async def _bring_up(self) -> None:
        spare = self.spares.take(self.worker)
        if spare is None:
            await self.worker.restart()
        else:
            self.worker = spare
        self.worker.on_end = self._on_worker_end
        self.limits.started()
        self.errors, self.up = 0, True

    def _failed(self, launch: Launch, error: Exception) -> Failed:
        """Kill the worker, which must restart before it is used again, and return the launch's failure."""
        self.up = False
        self.worker.kill()
        logger.error("worker %d failed in launch %d: %s", launch.worker, launch.id, error)
        return Failed(launch.id, str(error))

    def _on_worker_end(self) -> None:
        """Restart a worker that died idle. A death during a launch is reported as the launch's failure."""
        if self.launch is None and self.up:
            self.up = False
            self.died()
            logger.error("a worker died while idle; it is restarted")
            self.reviving = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        while not self.up:
            try:
                async with self.lock:
                    if not self.up:
                        await self._bring_up()
            except WorkerError as error:
                logger.error("the worker could not be started: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
