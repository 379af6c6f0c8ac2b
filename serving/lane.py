"""One worker as the driver sees it: what it has in hand, whether it is up, and how a launch on it ends.

Knows one worker and time limits; knows nothing of requests' askers or of the scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant.errors import WorkerError
from pliant.protocol import Failed, Finished, Launch, Result
from serving.workers import Worker

logger = logging.getLogger("pliant.serving")

End = tuple[Finished | Failed, Sequence[Any]]
"""How a launch ended, and one output a request (none where it failed)."""


@dataclass(slots=True)
class Lane:
    worker: Worker
    limit: float  # seconds after which a running launch counts as hung
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # keeps updates between launches
    launch: Launch | None = None
    up: bool = False

    async def start(self) -> None:
        await self.worker.start()
        self.up = True

    async def update(self, value: Any) -> None:
        async with self.lock:
            await self.worker.update(value)

    async def carry_out(self, launch: Launch, payloads: Sequence[Any]) -> End:
        """Never raises but for cancellation: a worker may fail in any way, and the scheduler decides what follows."""
        self.launch = launch
        try:
            async with self.lock:
                return await (self._restart(launch) if launch.kind == "restart" else self._run(launch, payloads))
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
        started = time.monotonic()
        await self.worker.restart()
        self.up, seconds = True, time.monotonic() - started
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
