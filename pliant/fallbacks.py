"""What a process does in a slower way than was meant, since the better way failed: a graph that cannot be captured, say.

Fallbacks are warnings of one logger. A device process collects them there for its service, which logs them, shows them in
its status and counts them. Knows no system.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

logger = logging.getLogger("pliant.fallbacks")


@dataclass(frozen=True, slots=True)
class Fallback:
    """`kind`: what failed (capture, package, memory, precision, attention).

    `reason`: what happened and what is done, one sentence. `batch`: how many requests of a launch at `setting` run at once
    from now on; 0 where that has not changed.
    """

    kind: str
    reason: str
    setting: int = 0
    batch: int = 0


def note(kind: str, reason: str, setting: int = 0, batch: int = 0) -> None:
    """Report a fallback, to the collector of this process or else to its log."""
    logger.warning("%s", reason, extra={"kind": kind, "setting": setting, "batch": batch})


class Collector(logging.Handler):
    """Keeps the fallbacks that are noted in this process until they are taken. The newest collector gets them."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: list[Fallback] = []
        for former in [handler for handler in logger.handlers if isinstance(handler, Collector)]:
            logger.removeHandler(former)
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        given = vars(record)
        sizes = int(given.get("setting", 0)), int(given.get("batch", 0))
        self._noted.append(Fallback(str(given.get("kind", "")), record.getMessage(), *sizes))

    def take(self) -> tuple[Fallback, ...]:
        """Return what was noted since the last call."""
        taken, self._noted = tuple(self._noted), []
        return taken
