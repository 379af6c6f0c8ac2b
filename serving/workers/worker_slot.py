"""One worker as the driver sees it: what it has in hand, whether it is up, and how a launch on it ends.

Another worker may take its place between two launches. Knows one worker at a time and time limits; knows nothing of
requests' clients or of the scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pliant.errors import WorkerError
from pliant.protocol import Failed, Finished, Launch, Result
from serving.workers.worker import Worker

logger = logging.getLogger("pliant.serving")

End = tuple[Finished | Failed, Sequence[Any]]
"""How a launch ended, and one output a request (none where it failed)."""

RETRY_SECONDS = 1.0  # before a worker that died idle, and could not be started again, is tried once more


@dataclass(slots=True, eq=False)
class WorkerSlot:
    worker: Worker
    limit: float  # seconds after which a running launch counts as hung
    died: Callable[[], None]  # called when the worker dies idle: no launch's end tells of that
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # keeps updates between launches
    launch: Launch | None = None
    up: bool = False
    between: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = field(default_factory=list)
    reviving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.worker.start()
        self._take(self.worker)

    async def stop(self) -> None:
        if self.reviving is not None:
            self.reviving.cancel()
            with suppress(asyncio.CancelledError):
                await self.reviving
        await self.worker.stop()

    async def update(self, value: Any, build: Any) -> None:
        """Carried to its end also where the client has gone: half a message would put the worker out of step."""
        await asyncio.shield(asyncio.ensure_future(self._update(value, build)))

    async def _update(self, value: Any, build: Any) -> None:
        async with self.lock:
            await self.worker.update(value, build)

    def when_free(self, act: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call `act` between two launches: now, or as soon as the present one has ended. Gives what it gave or raised."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.between.append((act, future))
        if self.launch is None:
            self.act_between()
        return future

    def act_between(self) -> None:
        """To be called when a launch has ended, before anybody hears of its end and decides on the next."""
        while self.between:
            act, future = self.between.pop(0)
            if future.cancelled():
                continue
            try:
                future.set_result(act())
            except Exception as error:  # it is for whoever asked
                future.set_exception(error)

    def exchange(self, worker: Worker) -> Worker:
        """A started worker takes the place of the present one, which is given back. Only between launches."""
        former, former.ended = self.worker, None
        if self.reviving is not None:
            self.reviving.cancel()
        self.worker = worker
        self._take(worker)
        return former

    async def carry_out(self, launch: Launch, payloads: Sequence[Any]) -> End:
        """Never raises but for cancellation: a worker may fail in any way, and the scheduler decides what follows."""
        self.launch = launch
        try:
            if not self.up and launch.kind != "restart":  # it is being brought back; others need not wait for that
                return Failed(launch.id, "the worker died while it had nothing to do"), ()
            async with self.lock:
                match launch.kind:
                    case "restart":
                        return await self._restart(launch)
                    case "load":
                        return Finished(launch.id, await self.worker.load(launch.setting)), ()
                return await self._run(launch, payloads)
        except Exception as error:
            return self._failed(launch, error), ()
        finally:
            self.launch = None

    async def _run(self, launch: Launch, payloads: Sequence[Any]) -> End:
        async with asyncio.timeout(self.limit):
            outputs, seconds = await self.worker.run(launch.setting, payloads)
        if len(outputs) != len(payloads):
            raise WorkerError(f"the worker gave {len(outputs)} outputs for {len(payloads)} requests")
        return Finished(launch.id, seconds, tuple(Result(request) for request in launch.requests)), outputs

    async def _restart(self, launch: Launch) -> End:
        """Nothing to do where the worker is up already: another one took its place, or it was brought back idle."""
        started = time.monotonic()
        if not self.up:
            await self.worker.restart()
            self.up = True
        seconds = time.monotonic() - started
        logger.warning("worker %d is up again after %.1f s", launch.worker, seconds)
        return Finished(launch.id, seconds), ()

    def _failed(self, launch: Launch, error: Exception) -> Failed:
        """Whatever state the worker is in, it is of no use before a restart."""
        self.up = False
        self.worker.kill()
        hung = f"it was still running after {self.limit:g} s"
        reason = hung if isinstance(error, TimeoutError) else str(error)
        logger.error("worker %d failed in launch %d: %s", launch.worker, launch.id, reason)
        return Failed(launch.id, reason)

    def _take(self, worker: Worker) -> None:
        worker.ended = self._ended
        self.up = True

    def _ended(self) -> None:
        """The worker died. During a launch that is the launch's failure; idle, it is brought back at once."""
        if self.launch is None and self.up:
            self.up = False
            self.died()
            logger.error("a worker died while it had nothing to do; it is started again")
            self.reviving = asyncio.create_task(self._revive(self.worker))

    async def _revive(self, worker: Worker) -> None:
        while not self.up:
            try:
                async with self.lock:
                    if not self.up:
                        await worker.restart()
                        self.up = True
            except WorkerError as error:
                logger.error("the worker could not be started: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
