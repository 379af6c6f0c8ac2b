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

from pliant.serving.driver import Driver
from pliant.serving.journal import FileRecorder
from pliant.serving.request_context import TO_CHALLENGER

logger = logging.getLogger("pliant.serving")


class Running(Protocol):
    """What answers the requests of a generation."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    @property
    def ready(self) -> bool: ...
    @property
    def devices(self) -> int: ...  # that are up
    @property
    def alive(self) -> bool: ...
    @property
    def waiting(self) -> int: ...
    @property
    def pending(self) -> int: ...


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
    """The present generation, one beside it, the one before on standby, and former ones that still answer their requests.

    Beside it is a challenger on trial, or the former champion with which a promoted challenger is compared in its guard.
    """

    def __init__(
        self,
        first: Generation[C, H, D],
        on_drained: Callable[[Generation[C, H, D]], None] = lambda _: None,
        standby_seconds: float = 0.0,
    ) -> None:
        """`on_drained` is called with each generation that has stopped before the service does.

        `standby_seconds`: that a former generation stays loaded, so that going back to it takes no time; 0: it stops as
        soon as it has answered its requests.
        """
        self.present, self._on_drained, self._standby_seconds = first, on_drained, standby_seconds  # the champion's
        self._draining: set[asyncio.Task[None]] = set()
        self.standby: Generation[C, H, D] | None = None  # the former one, while it is still loaded
        self._expiry: asyncio.TimerHandle | None = None
        self.challenger: Generation[C, H, D] | None = None  # beside the present one
        self._promotable = True
        self.guards = False
        """Whether a challenger that is promoted leaves the former champion beside it."""
        self.former_beside = False
        """Whether the former champion is beside the present generation, and no challenger."""

    @property
    def chosen(self) -> Generation[C, H, D]:
        """Return the generation that the current request goes to: the champion's, or that of a challenger on trial."""
        challenger = self.challenger
        return challenger if challenger is not None and TO_CHALLENGER.get() else self.present

    @property
    def loaded(self) -> list[Generation[C, H, D]]:
        """Return the generations that answer requests or may do so again."""
        return [each for each in (self.present, self.challenger, self.standby) if each is not None]

    @property
    def draining(self) -> int:
        """Return how many former generations still answer requests."""
        return len(self._draining)

    def promote(self, started: Generation[C, H, D]) -> None:
        """Send all requests to `started` from now on, and stop the former generation once it has answered its own.

        Callers await nothing between reading `present` and submitting to it. The former one, if it can stay loaded,
        answers its own as well, and then stands by.
        """
        former, self.present = self.present, started
        promoted = started is self.challenger
        guarded = promoted and self.guards and not self.former_beside
        if promoted:
            self.challenger, self.former_beside = None, False
        self.drop_standby()
        if guarded:
            self.challenger, self.former_beside = former, True
        elif self._standby_seconds:
            self.standby = former
            self._expiry = asyncio.get_running_loop().call_later(self._standby_seconds, self.drop_standby)
        else:
            self._drain_soon(former)

    def take_loaded(self, serves: Callable[[C], bool]) -> Generation[C, H, D] | None:
        """Return the generation on trial or on standby, if its catalog is the wanted one and it can answer.

        It is to be promoted then: it stands by no more.
        """
        challenger, standby = self.challenger, self.standby
        if challenger is not None and self._promotable and challenger.driver.ready and serves(challenger.catalog):
            return challenger
        if standby is None or not standby.driver.ready or not serves(standby.catalog):
            return None
        self._forget_standby()
        return standby

    def drop_standby(self) -> asyncio.Task[None] | None:
        """Stop the former generation that is still loaded, if there is one, and return the task that waits for its end."""
        if self.former_beside:
            return self.end_challenge()
        standby = self.standby
        self._forget_standby()
        return None if standby is None else self._drain_soon(standby)

    def challenge(self, started: Generation[C, H, D], promotable: bool = True, as_former: bool = False) -> None:
        """Let a started generation answer the requests that are routed to it (serving/request_context.py).

        `promotable`: whether it may be the champion's as it is; not if its processes have a lower priority. `as_former`:
        it is the former champion's.
        """
        former, self.challenger, self._promotable = self.challenger, started, promotable
        self.former_beside = as_former
        if former is not None:
            self._drain_soon(former)

    def end_challenge(self) -> asyncio.Task[None] | None:
        """Send no further request to the generation beside, and return the task that stops it once it has answered its
        own."""
        challenger, self.challenger, self.former_beside = self.challenger, None, False
        return None if challenger is None else self._drain_soon(challenger)

    def _forget_standby(self) -> None:
        self.standby = None
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _drain_soon(self, former: Generation[C, H, D]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._drain(former))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)
        return task

    def amend(self, extended: Generation[C, H, D]) -> None:
        """Replace the catalog and handlers of the present generation, which keeps its driver and workers."""
        assert extended.driver is self.present.driver, "another driver is another generation"
        self.present = extended

    async def stop(self) -> None:
        """Answer the pending requests of all generations, then stop them."""
        self.drop_standby()
        self.end_challenge()
        await asyncio.gather(self.present.stop(), *self._draining)

    async def _drain(self, former: Generation[C, H, D]) -> None:
        try:
            await former.stop()
        except Exception as error:  # only the end of the service waits for this task
            logger.error("generation %d did not stop cleanly", former.number, exc_info=error)
        self._on_drained(former)


def numbered_journal(journal: Path, generation: int) -> Path:
    """Return the journal's path of a generation: NAME.jsonl, then NAME-2.jsonl and so on. Each replays by itself."""
    return journal if generation == 1 else journal.with_stem(f"{journal.stem}-{generation}")
