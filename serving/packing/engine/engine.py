"""An engine as the service sees it: outputs in, their tokens back, and nothing lost when its process dies or hangs.

Knows the process by its messages, and which outputs it has; decides nothing. A process that died is started again, and
every output goes on from the tokens it has: the same seed gives the same text. One that was in two processes when they
died is not tried a third time, since it may be what kills them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

from pliant.errors import WorkerError
from pliant.packing.engine.submission import Progress, Status
from serving.clock import Clock
from serving.packing.engine.in_flight import InFlightOutput
from serving.packing.engine.worker import Worker
from serving.packing.messages import NO_STATUS

logger = logging.getLogger("pliant.serving")

CRASHES = 2  # that an output survives less than
STARTS = 3  # in a row that may fail before nobody is kept waiting
LOOK_SECONDS = 1.0  # that a look at the books may take


@dataclass(frozen=True, slots=True)
class Limits:
    silence: float = 60.0  # seconds without news, with outputs on their way, after which a process counts as hung
    drain: float = 3600.0  # seconds that `stop` waits for outputs on their way
    retry: float = 1.0  # seconds between two starts


@dataclass(frozen=True, slots=True)
class Looked:
    """`books`: what is wrong with them; empty where they balance. None: the engine did not answer."""

    status: Status
    books: str | None


class EngineDriver:
    """For one event loop, between `start` and `stop`."""

    def __init__(
        self, worker: Worker, clock: Clock, limits: Limits = Limits(), died: Callable[[], None] = lambda: None
    ) -> None:
        self._worker, self._clock, self._limits, self._died = worker, clock, limits, died
        worker.heard, worker.ended = self._heard, self._ended
        # Those too that ended here and of which the engine does not know it yet.
        self._flights: dict[int, InFlightOutput] = {}
        self._looks: dict[int, asyncio.Future[Looked]] = {}
        self._ids, self._questions = count(), count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._heard_at = 0.0
        self._up = self._stopping = False
        self._failed_starts = 0
        self.status = NO_STATUS

    @property
    def ready(self) -> bool:
        return self._up and not self._stopping

    @property
    def alive(self) -> bool:
        return self._failed_starts < STARTS

    @property
    def pending(self) -> int:
        return len(self._flights)

    @property
    def waiting(self) -> int:
        """Outputs without a token."""
        return sum(not flight.begun for flight in self._flights.values())

    def fresh_id(self) -> int:
        return next(self._ids)

    async def start(self) -> None:
        """Raises `WorkerError`."""
        await self._worker.start()
        self._up = True
        self._spawn(self._watch())

    async def stop(self) -> None:
        """Let all outputs come to their ends, then end the process."""
        self._stopping = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain):
                await self._idle.wait()
        self._end_all("the service stopped before the output's end")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._worker.stop()

    def submit(self, flights: Iterable[InFlightOutput]) -> None:
        """Raises `WorkerError` after `stop`, and where the process cannot be started."""
        if self._stopping:
            raise WorkerError("the service is stopping")
        if not self.alive:
            raise WorkerError("the engine's process cannot be started; it is tried again")
        if not self._flights:
            self._heard_at = self._clock()
        self._idle.clear()
        for flight in flights:
            self._flights[flight.id] = flight
            if self._up:
                self._worker.send("submit", flight.submission())

    def cancel(self, flight: InFlightOutput) -> None:
        """Its pages are free with the engine's next iteration."""
        if self._flights.get(flight.id) is not flight:
            return
        flight.end("cancelled")
        if self._up:
            self._worker.send("cancel", flight.id)
        else:
            self._forget(flight.id)

    async def look(self) -> Looked:
        """The engine's books, as they are between two iterations."""
        if not self._up:
            return Looked(self.status, None)
        number = next(self._questions)
        future: asyncio.Future[Looked] = asyncio.get_running_loop().create_future()
        self._looks[number] = future
        self._worker.send("look", number)
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await future
        except TimeoutError:
            return Looked(self.status, None)
        finally:
            del self._looks[number]

    def _heard(self, kind: str, value: Any) -> None:
        self._heard_at = self._clock()
        match kind:
            case "progress":
                self._take(value)
            case "status":
                self.status = value
            case "looked":
                number, self.status, books = value
                future = self._looks.get(number)
                if future is not None and not future.done():
                    future.set_result(Looked(self.status, books))
            case "declined":
                id, fault = value
                if id in self._flights:
                    self._flights[id].end("failed", fault)
                    self._forget(id)

    def _take(self, news: Sequence[Progress]) -> None:
        for progress in news:
            flight = self._flights.get(progress.id)
            if flight is None:
                continue
            before = flight.finish
            self._tell(flight, progress)
            if progress.finished:
                self._forget(progress.id)
            elif flight.finish and not before:  # by itself: at a stop string, or because nobody reads
                self._worker.send("cancel", progress.id)

    def _tell(self, flight: InFlightOutput, progress: Progress) -> None:
        try:
            flight.take(progress)
        except Exception as error:  # our own bug, but no reason to lose the others
            logger.error("the progress of output %d could not be taken", progress.id, exc_info=error)
            flight.finish, flight.fault = "failed", f"its text could not be made: {type(error).__name__}: {error}"
            flight.news(flight)

    def _forget(self, id: int) -> None:
        self._flights.pop(id, None)
        if not self._flights:
            self._idle.set()

    def _ended(self) -> None:
        if not self._up:
            return
        self._up = False
        self._died()
        self.status = NO_STATUS
        logger.error("an engine's process died with %d outputs; it is started again", len(self._flights))
        for flight in list(self._flights.values()):
            flight.crashes += 1
            if flight.crashes >= CRASHES:
                flight.end("failed", f"the engine's process died {CRASHES} times with this output in it")
            if flight.finish:
                self._forget(flight.id)
        self._spawn(self._revive())

    async def _revive(self) -> None:
        while True:
            try:
                await self._worker.start()
                break
            except WorkerError as error:
                self._failed_starts += 1
                logger.error("the engine could not be started: %s", error)
            if not self.alive:
                self._end_all("the engine's process cannot be started")
            await asyncio.sleep(self._limits.retry)
        self._failed_starts, self._up, self._heard_at = 0, True, self._clock()
        for flight in self._flights.values():
            self._worker.send("submit", flight.submission())

    async def _watch(self) -> None:
        """A process that says nothing although it has something to do is ended; what follows is as if it had died."""
        while True:
            await asyncio.sleep(self._limits.silence / 4)
            if self._up and self._flights and self._clock() - self._heard_at > self._limits.silence:
                logger.error("an engine's process said nothing for %g s; it is ended", self._limits.silence)
                self._worker.kill()

    def _end_all(self, fault: str) -> None:
        for flight in list(self._flights.values()):
            flight.end("cancelled", fault)
            self._forget(flight.id)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
