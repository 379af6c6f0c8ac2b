"""Looks at the registry now and then, one look at a time, and tells how each ended. Knows nothing of what a look does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pliant.errors import PliantError

logger = logging.getLogger("pliant.serving")


class Counter(Protocol):
    def refreshed(self, outcome: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one look. `changed`: registered model -> version, of what is served newly since."""

    outcome: str  # unchanged, changed, held (does not fit together, yet) or failed
    message: str
    changed: Mapping[str, int]

    def plain(self) -> dict[str, Any]:
        return asdict(self)


Look = Callable[[bool], Awaitable[Outcome]]
"""One look; patient: what did not fit together at the last one need not be tried again before something moves."""


class Poller:
    """`seconds` between two looks; 0 for none but those that are asked for. Whoever holds `busy` keeps looks off."""

    def __init__(self, look: Look, seconds: float, metrics: Counter) -> None:
        self._look, self.seconds, self._metrics = look, seconds, metrics
        self.busy = asyncio.Lock()
        self.last = Outcome("unchanged", "not looked yet", {})

    async def run(self) -> None:
        """Look for ever. No fault of registry or artifacts ends it, and none of ours."""
        while self.seconds:
            await asyncio.sleep(self.seconds)
            try:
                await self.poll(patient=True)
            except Exception as error:  # told by `last`, the metric and the log
                if not isinstance(error, PliantError):
                    logger.error("the look at the registry failed", exc_info=error)

    async def poll(self, patient: bool = False) -> Outcome:
        """Look at the registry once and return what came of it. Raises what the look raises, after it was noted."""
        async with self.busy:
            try:
                outcome = await self._look(patient)
            except Exception as error:
                self._note(Outcome("failed", str(error), {}))
                raise
            self._note(outcome)
            return outcome

    def _note(self, outcome: Outcome) -> None:
        """Counted each time; in the log only when it is news."""
        self._metrics.refreshed(outcome.outcome)
        if outcome != self.last and outcome.outcome != "unchanged":
            log = logger.info if outcome.outcome == "changed" else logger.warning
            log("refresh: %s: %s", outcome.outcome, outcome.message)
        self.last = outcome


def listed(moved: Mapping[str, int]) -> str:
    return ", ".join(f"{name} version {version}" for name, version in sorted(moved.items()))
