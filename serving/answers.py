"""What becomes of a request, and what is kept of it until then. Plain values; knows nothing of who fills them in."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from pliant.protocol import Launch, Request


@dataclass(frozen=True, slots=True)
class Completed:
    """An output and how it came about. Queue: until its launch was decided; run: on the device, by its own clock.

    `known` names what the scheduler went by when it decided the launch (see `Driver.change`).
    """

    output: Any
    setting: int
    batch: int
    queue_seconds: float
    run_seconds: float
    late_by: float  # negative: seconds to spare
    known: Any = None
    reason: str = ""  # why no further launch was made that was wanted, see protocol.ANSWER_REASONS
    ran: tuple[LaunchResult, ...] = ()  # all its launches, in order

    @property
    def on_time(self) -> bool:
        return self.late_by <= 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """No output; reasons as in protocol.DROP_REASONS."""

    reason: str


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A launch, when it was decided, and by what knowledge."""

    launch: Launch
    at: float
    known: Any


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """One launch's share of one request."""

    output: Any
    decided: Dispatched
    seconds: float


@dataclass(slots=True)
class Pending:
    request: Request
    payload: Any  # what the next launch is sent
    answer: asyncio.Future[Completed | Rejected]
    state: Any = None  # what is kept of it here from one launch to the next
    ran: dict[int, LaunchResult] = field(default_factory=dict)  # launch id -> what it gave

    @property
    def last(self) -> LaunchResult:
        """The latest launch that ended well."""
        return next(reversed(self.ran.values()))

    def settle(self, answer: Completed | Rejected) -> None:
        if not self.answer.done():  # the client may have gone
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def served(self, launch: int, now: float, reason: str = "") -> Completed:
        ran = self.ran[launch]
        decided = ran.decided
        queued, late_by = decided.at - self.request.arrival, now - self.request.deadline
        batch, setting = len(decided.launch.requests), decided.launch.setting
        every = tuple(self.ran.values())
        return Completed(ran.output, setting, batch, queued, ran.seconds, late_by, decided.known, reason, every)
