"""One generation of a service: what it serves, with a scheduler, a driver and device processes of its own.

When the registry's alias points to something else, the next generation is built beside the present one, takes its place
for all that is asked from then on, and the former one answers what it has and goes. So no request ever meets two sets of
models, and no scheduler ever changes what it goes by. Costs both their memory for that while. Knows no system.
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


C = TypeVar("C")
W = TypeVar("W")
D = TypeVar("D", bound=Running, default=Driver)


@dataclass(frozen=True, slots=True)
class Generation(Generic[C, W, D]):
    """`C` is the system's catalog, `W` what it keeps for the requests of one task, `D` what answers them."""

    number: int  # from 1 on
    catalog: C
    ways: Mapping[str, W]  # by task
    driver: D
    recorder: FileRecorder | None = None

    async def start(self) -> None:
        """Return when every worker has run its models. Raises `WorkerError`; nothing of it is left then."""
        try:
            await self.driver.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Answer everything in flight, then end the device processes."""
        await self.driver.stop()
        if self.recorder is not None:
            self.recorder.close()


class Generations(Generic[C, W, D]):
    """The present one, and former ones that are on their way out."""

    def __init__(
        self,
        first: Generation[C, W, D],
        gone: Callable[[Generation[C, W, D], Generation[C, W, D]], None] = lambda *_: None,
    ) -> None:
        """`gone` is called with each that has ended while the service goes on, and with the present one."""
        self._present, self._gone = first, gone
        self._leaving: set[asyncio.Task[None]] = set()

    @property
    def present(self) -> Generation[C, W, D]:
        return self._present

    @property
    def leaving(self) -> int:
        return len(self._leaving)

    def become(self, started: Generation[C, W, D]) -> None:
        """Requests go to `started` from now on. Nothing is awaited between looking at `present` and submitting to it."""
        former, self._present = self._present, started
        task = asyncio.create_task(self._leave(former))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def stop(self) -> None:
        """Answer everything in flight, of whatever generation."""
        await asyncio.gather(self._present.stop(), *self._leaving)

    async def _leave(self, former: Generation[C, W, D]) -> None:
        try:
            await former.stop()
        except Exception as error:  # nobody waits for this task but the end of the service
            logger.error("generation %d did not end well", former.number, exc_info=error)
        self._gone(former, self._present)


def numbered(journal: Path, generation: int) -> Path:
    """The first one's own name, then journal-2.jsonl and so on: each replays by itself."""
    return journal if generation == 1 else journal.with_stem(f"{journal.stem}-{generation}")
