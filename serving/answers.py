"""The driver's record of a request while it is pending, and how the request ends. Plain values."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Any

from pliant.protocol import Action, Answer, Launch, Request

RATE_MEMORY = 10.0  # seconds, the time constant of the mean


class WayBack:
    """The way back of one request's answer, from the decision of a scheduler or an engine until the door writes it."""

    __slots__ = ("_decided", "_over")

    def __init__(self) -> None:
        self._decided: float | None = None  # on the clock of the event loop
        self._over = False

    def decided(self, ago: float = 0.0) -> None:
        """Note that it was decided `ago` seconds ago what becomes of the request, or of what comes last of it."""
        if not self._over:
            self._decided = asyncio.get_running_loop().time() - ago

    def written(self) -> float | None:
        """Return the seconds from the decision until now, when the answer, or its beginning, is written; None if unknown.

        Later parts of an answer are not measured.
        """
        if self._over:
            return None
        self._over = True
        return None if self._decided is None else asyncio.get_running_loop().time() - self._decided

    def leave_out(self) -> None:
        """Measure nothing: the answer waits for its reader, which says nothing about the service."""
        self._over = True


@dataclass(frozen=True, slots=True)
class Completed:
    """An output and how it came about.

    `queue_seconds`: from arrival until its launch was decided; `run_seconds`: on the device, by the device's clock.
    """

    output: Any
    setting: int
    batch: int
    queue_seconds: float
    run_seconds: float
    late_by: float  # seconds after the deadline; negative: before it
    reason: str = ""  # why a further launch that was wanted did not happen, see protocol.Drop
    launches: tuple[LaunchResult, ...] = ()  # all its launches, in order

    @property
    def on_time(self) -> bool:
        """Whether the deadline was met."""
        return self.late_by <= 0

    @property
    def outcome(self) -> str:
        """Return how the request ended, as a label of the metrics."""
        return "on_time" if self.on_time else "late"


@dataclass(frozen=True, slots=True)
class Rejected:
    """The request gets no output, for a reason of protocol.Drop.

    `retry_after`: seconds in which the requests that wait now are probably answered.
    """

    reason: str
    retry_after: float = 1.0


@dataclass(frozen=True, slots=True)
class Dispatched:
    """A launch, and when the scheduler decided it (`at`, on the driver's clock)."""

    launch: Launch
    at: float


@dataclass(frozen=True, slots=True)
class LaunchResult:
    """What one launch gave one request, `ended` on the driver's clock; `seconds`: the whole launch's on the device."""

    output: Any
    dispatched: Dispatched
    seconds: float
    ended: float


@dataclass(slots=True)
class Pending:
    """A request without an answer yet."""

    request: Request
    payload: Any  # what the next launch sends to the device
    answer: asyncio.Future[Completed | Rejected]
    state: Any = None  # the system's own, kept from one launch to the next
    launches: dict[int, LaunchResult] = field(default_factory=dict)  # by launch id
    way_back: WayBack | None = None

    @property
    def last(self) -> LaunchResult:
        """Return the result of the latest launch that succeeded."""
        return next(reversed(self.launches.values()))

    def settle(self, answer: Completed | Rejected, ago: float = 0.0) -> None:
        """Give the answer, which was decided `ago` seconds ago, to whoever waits for it."""
        if self.way_back is not None:
            self.way_back.decided(ago)
        if not self.answer.done():  # the client may have disconnected
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        """Raise the error in whoever waits for the answer."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def completed(self, launch: int, now: float, reason: str = "") -> Completed:
        """Return the answer that the output of a launch gives at `now`."""
        result = self.launches[launch]
        dispatched = result.dispatched
        queued, late_by = dispatched.at - self.request.arrival, now - self.request.deadline
        batch, setting = len(dispatched.launch.requests), dispatched.launch.setting
        all_results = tuple(self.launches.values())
        return Completed(result.output, setting, batch, queued, result.seconds, late_by, reason, all_results)


def judged(answer: Completed | Rejected, late_by: float) -> Completed | Rejected:
    """Return the answer with its lateness by now: the event loop may have had other work since it was given."""
    return replace(answer, late_by=late_by) if isinstance(answer, Completed) else answer


def settle_what_ran(pending_by_id: dict[int, Pending], now: float) -> list[Action]:
    """Answer the requests that have an output with it, as no launch of the former scheduler is known any more."""
    actions: list[Action] = []
    for id, pending in list(pending_by_id.items()):
        if pending.launches and not pending.answer.done():
            launch = pending.last.dispatched.launch.id
            actions.append(Answer(id, launch, "failed"))
            pending_by_id.pop(id).settle(pending.completed(launch, now, "failed"))
    return actions


class AnswerRate:
    """An exponentially weighted mean of answers per second. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._rate, self._at = 0.0, 0.0

    def count(self, now: float) -> None:
        """An answer was given."""
        self._rate = self._decayed(now) + 1 / RATE_MEMORY
        self._at = now

    def seconds(self, waiting: int, now: float) -> float:
        """Return the seconds in which so many requests are probably answered: at least 1, also if none was lately."""
        rate = self._decayed(now)
        return max(1.0, waiting / rate) if rate > 0.01 else 1.0

    def _decayed(self, now: float) -> float:
        return self._rate * math.exp((self._at - now) / RATE_MEMORY)
