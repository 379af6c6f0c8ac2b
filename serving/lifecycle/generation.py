"""Generations of a service: each serves one set of versions, with a scheduler, a driver and device processes of its own.

When the registry's alias moves, the next generation starts beside the present one and receives all new requests; the
former one answers those that it has, and stops. So every request is answered by one set of models. Meanwhile both need
memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol

from typing_extensions import TypeVar  # with defaults, which the standard library has from 3.13 on

from serving.driver import Driver
from serving.journal import FileRecorder

logger = logging.getLogger("pliant.serving")


class Running(Protocol):
    """What answers the requests of a generation."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def alive(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    @property
    def pending(self) -> int: ...
    @property
    def usual_deadline(self) -> float: ...


C = TypeVar("C")
H = TypeVar("H")
D = TypeVar("D", bound=Running, default=Driver)


@dataclass(frozen=True, slots=True)
class Generation(Generic[C, H, D]):
    """What serves one set of versions. `C` is the system's catalog, `H` its handler of one task, `D` its driver."""

    number: int  # from 1 on
    catalog: C
    handlers: Mapping[str, H]  # by task
    driver: D
    recorder: FileRecorder | None = None

    async def start(self) -> None:
        """Return when every worker has run its models. Raises `WorkerError`; then nothing is left running."""
        try:
            await self.driver.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Answer all pending requests, then end the device processes."""
        await self.driver.stop()
        if self.recorder is not None:
            self.recorder.close()


class Generations(Generic[C, H, D]):
    """The present generation, and former ones that still answer their requests."""

    def __init__(
        self,
        first: Generation[C, H, D],
        on_drained: Callable[[Generation[C, H, D], Generation[C, H, D]], None] = lambda *_: None,
    ) -> None:
        """`on_drained` is called with each former generation that has stopped, and with the present one."""
        self._present, self._on_drained = first, on_drained
        self._draining: set[asyncio.Task[None]] = set()

    @property
    def present(self) -> Generation[C, H, D]:
        return self._present

    @property
    def draining(self) -> int:
        """Return how many former generations still answer requests."""
        return len(self._draining)

    def promote(self, started: Generation[C, H, D]) -> None:
        """Send all requests to `started` from now on, and stop the former generation once it has answered its own.

        Callers await nothing between reading `present` and submitting to it.
        """
        former, self._present = self._present, started
        task = asyncio.create_task(self._drain(former))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)

    def amend(self, extended: Generation[C, H, D]) -> None:
        """Replace the catalog and handlers of the present generation, which keeps its driver and workers."""
        assert extended.driver is self._present.driver, "another driver is another generation"
        self._present = extended

    async def stop(self) -> None:
        """Answer the pending requests of all generations, then stop them."""
        await asyncio.gather(self._present.stop(), *self._draining)

    async def _drain(self, former: Generation[C, H, D]) -> None:
        try:
            await former.stop()
        except Exception as error:  # only the end of the service waits for this task
            logger.error("generation %d did not stop cleanly", former.number, exc_info=error)
        self._on_drained(former, self._present)


def numbered_journal(journal: Path, generation: int) -> Path:
    """Return the journal's path of a generation: NAME.jsonl, then NAME-2.jsonl and so on. Each replays by itself."""
    return journal if generation == 1 else journal.with_stem(f"{journal.stem}-{generation}")
