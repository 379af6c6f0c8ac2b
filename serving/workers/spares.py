"""Workers that stand by with their models loaded: one of them takes the place of a worker that died or hung.

The former worker is restarted in the background and stands by from then on. A spare serves in the place of a worker
with an equal build only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from pliant.errors import WorkerError
from pliant.serving.workers.worker import Rebuild, Worker

logger = logging.getLogger("pliant.serving")

RETRY_SECONDS = 1.0  # between two attempts to start a spare


class Spares:
    """The spare workers of a driver, none of them started; they are started in the background."""

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
                worker.remember(build)
                continue
            self._ready.remove(worker)  # it cannot serve during the call
            try:
                await worker.update(value, build)
                self._ready.append(worker)
            except WorkerError as error:
                logger.error("a spare worker is started again: %s", error)
                worker.remember(build)
                self._start_soon(worker)

    def remember(self, rebuild: Rebuild) -> None:
        """Change the build that every spare uses if it is started again."""
        for worker in self._workers:
            worker.remember(rebuild(worker.build))

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
