"""What is known of the request that is being handled: its id, key and tenant, which arm of a trial answers it, whether it is
a copy, and when it was decided what becomes of it.

Context variables, so that the tasks that a request starts know it, too, and nothing has to be handed through.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pliant.serving.tracing.traced import Traced

T = TypeVar("T")

SLOWER = 0.1  # share of the answers that take longer than the forecast
PRIOR = 10  # answers written at once that count beside those of two windows: a few slow ones among few say nothing
LEAST, STEPS, BINS = 1e-4, 4, 72  # seconds of the first bin, bins for each doubling, and bins: up to 22 s
WINDOW = 2.0  # usual deadlines
SHORTEST_WINDOW, LONGEST_WINDOW = 0.1, 5.0  # seconds between which that is kept
NEWEST = 0.05  # weight of the newest request in the usual deadline

REQUEST_ID: ContextVar[str] = ContextVar("id of the request", default="")
TENANT: ContextVar[str] = ContextVar("tenant of the request", default="")
REQUEST_KEY: ContextVar[str] = ContextVar("key of the request", default="")
"""By which a client's requests stay with one arm of a trial; empty for a request without."""
EVIDENCE: ContextVar[str] = ContextVar("tenant whose evidence is capped", default="")
"""Empty where it is not capped (`Groups` of pliant/fairness.py)."""
TO_CHALLENGER: ContextVar[bool] = ContextVar("whether the request goes to the challenger", default=False)
_COPY: ContextVar[bool] = ContextVar("whether this is a copy, whose answer nobody gets", default=False)


def request_fields() -> dict[str, str]:
    """Return `request_id` and `tenant` for the log, as far as they are known; empty outside of a request."""
    return {name: value for name, value in (("request_id", REQUEST_ID.get()), ("tenant", TENANT.get())) if value}


@contextmanager
def to_challenger(copy: bool = False) -> Iterator[None]:
    """Let the challenger's generation, if there is one, do what is done in this context, and in tasks that it starts.

    `copy`: nobody gets the answer, so nothing is counted for it.
    """
    with holding(TO_CHALLENGER, True), holding(_COPY, copy):
        yield


@contextmanager
def to_champion_as_copy() -> Iterator[None]:
    """Let the champion's generation answer a copy, which is not counted."""
    with holding(TO_CHALLENGER, False), holding(_COPY, True):
        yield


def is_copy() -> bool:
    """Whether what is being handled is a copy: clients, tenants and statistics know nothing of it."""
    return _COPY.get()


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable have this value in this context, and in tasks that it starts."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


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


_WAY_BACK: ContextVar[WayBack | None] = ContextVar("the way back of the answer to the request", default=None)


def begin_way_back() -> WayBack:
    """Return the way back of the request that is handled in this context from now on."""
    way = WayBack()
    _WAY_BACK.set(way)
    return way


def current_way_back() -> WayBack | None:
    """Return the way back of the request that is handled; None where nobody measures it, or of a copy."""
    return None if is_copy() else _WAY_BACK.get()


def note_decided() -> None:
    """Note that it is decided now what becomes of the request that is handled."""
    if (way_back := current_way_back()) is not None:
        way_back.decided()


TRACED: ContextVar[Traced | None] = ContextVar("the trace of the request that is served", default=None)


def current_trace() -> Traced | None:
    """Return the trace of the request that is served; None where it is not traced, or is a copy of one."""
    traced = TRACED.get()
    return None if traced is None or is_copy() else traced


class FrontDoor:
    """What a service's front door takes of the time of a request: learnt from the answers that it has written.

    A scheduler decides by deadlines, but an answer is of use only once it is written: after its decision come the event
    loop, the encoding, the middleware and the socket. These seconds are forecast and taken off each deadline before a
    scheduler sees it. The way there needs no forecast: a request is stamped when it comes to the socket.

    The forecast is a high quantile of the latest seconds, over two windows at most, each a few usual deadlines long. So
    what was learnt in a bad moment is forgotten soon, whether or not any request is let in meanwhile; refusals teach as
    answers do; and where nothing is known nothing is taken off. Times are seconds on any one clock. `usual_deadline`:
    seconds, until requests have said otherwise.
    """

    def __init__(self, usual_deadline: float = 0.5) -> None:
        self.usual_deadline = usual_deadline
        """The geometric mean of the latest deadlines, in seconds from the socket: few very long ones change it little."""
        self._present, self._former = [0] * BINS, [0] * BINS  # answers by seconds, of this window and the one before
        self._begun = -math.inf  # the present window
        self._forecast: float | None = None  # None: to be computed anew

    def note_deadline(self, deadline: float) -> None:
        """Note that a request must be answered within so many seconds of its arrival at the socket."""
        self.usual_deadline *= (max(deadline, LEAST) / self.usual_deadline) ** NEWEST

    def answered(self, seconds: float, now: float) -> None:
        """Note that an answer or a refusal was written so many seconds after it was decided."""
        self._turn(now)
        doublings = math.log2(max(seconds, LEAST) / LEAST)
        self._present[min(math.ceil(STEPS * doublings), BINS - 1)] += 1
        self._forecast = None

    def way_back(self, now: float) -> float:
        """Return the seconds within which an answer that is decided now will be written, most probably."""
        self._turn(now)
        if self._forecast is None:
            self._forecast = self._quantile()
        return self._forecast

    def _turn(self, now: float) -> None:
        """Begin another window if the present one is over, or if the clock went back."""
        window = min(max(WINDOW * self.usual_deadline, SHORTEST_WINDOW), LONGEST_WINDOW)
        age = now - self._begun
        if 0 <= age < window:
            return
        self._former = self._present if window <= age < 2 * window else [0] * BINS
        self._present, self._begun, self._forecast = [0] * BINS, now, None

    def _quantile(self) -> float:
        counts = [present + former for present, former in zip(self._present, self._former, strict=True)]
        above = math.floor(SLOWER * (sum(counts) + PRIOR))  # answers that may take longer
        for place in range(BINS - 1, -1, -1):
            above -= counts[place]
            if above < 0:
                return LEAST * 2 ** (place / STEPS)
        return 0.0
