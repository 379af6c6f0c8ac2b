"""Polls the registry at intervals, one poll at a time, and records how each ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pliant.errors import PliantError
from pliant.redaction import redact

logger = logging.getLogger("pliant.serving")


class RefreshCounter(Protocol):
    """Counts polls by their outcome."""

    def refreshed(self, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one poll. `changed`: registered model -> version, of the versions that are now served."""

    outcome: str  # unchanged, changed, held (the new versions do not fit together yet) or failed
    message: str
    changed: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""
        return asdict(self)


Poll = Callable[[bool], Awaitable[Outcome]]
"""Polls once. The argument `retry_held` says whether versions that the last poll held are tried again."""


Bell = Callable[[], object]
"""Gives another value as soon as a poll is worth while, and costs next to nothing."""
LISTEN_SECONDS = 0.25  # between two looks at the bell


class Poller:
    """Polls every `seconds`, or as soon as the bell rings; 0: only when `poll` is called.

    No poll runs while somebody holds the lock `busy`.
    """

    def __init__(self, poll: Poll, seconds: float, metrics: RefreshCounter, bell: Bell | None = None) -> None:
        self._poll, self.seconds, self._metrics, self._bell = poll, seconds, metrics, bell
        self._heard = bell() if bell is not None else None
        self.busy = asyncio.Lock()
        self.last = Outcome("unchanged", "not polled yet", {})

    async def run(self) -> None:
        """Poll until cancelled. No exception ends it."""
        while self.seconds:
            await self._wait()
            try:
                await self.poll(retry_held=False)
            except Exception as error:  # `last`, the metric and the log report it
                if not isinstance(error, PliantError):
                    logger.error("the poll of the registry failed", exc_info=error)

    async def _wait(self) -> None:
        """Return when it is time for a poll."""
        if self._bell is None:
            await asyncio.sleep(self.seconds)
            return
        until = asyncio.get_running_loop().time() + self.seconds
        while self._heard == (heard := self._bell()) and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(min(LISTEN_SECONDS, self.seconds))
        self._heard = heard

    async def poll(self, retry_held: bool = True) -> Outcome:
        """Poll once and return the outcome. Raises what the poll raises, after recording it."""
        async with self.busy:
            try:
                outcome = await self._poll(retry_held)
            except Exception as error:
                self.record(Outcome("failed", redact(str(error)), {}))
                raise
            self.record(outcome)
            return outcome

    def record(self, outcome: Outcome) -> None:
        """Count the outcome, and log it if it differs from the last one."""
        self._metrics.refreshed(outcome.outcome)
        if outcome != self.last and outcome.outcome != "unchanged":
            log = logger.info if outcome.outcome == "changed" else logger.warning
            log("refresh: %s: %s", outcome.outcome, outcome.message)
        self.last = outcome


def join_versions(moved: Mapping[str, int]) -> str:
    """Return models with their versions as part of a sentence."""
    return ", ".join(f"{name} version {version}" for name, version in sorted(moved.items()))
