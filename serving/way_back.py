"""When it was decided what becomes of the request that is being handled: from there on counts the way of its answer back.

Whatever decides (a scheduler, an engine) notes it, and the door, which writes the answer, measures. A context variable, so
that nothing has to be handed through, and that the tasks that a request starts know it, too.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from pliant.serving.arms import is_copy


class WayBack:
    """The way back of one request's answer."""

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


_CURRENT: ContextVar[WayBack | None] = ContextVar("the way back of the answer to the request", default=None)


def begin_way_back() -> WayBack:
    """Return the way back of the request that is handled in this context from now on."""
    way = WayBack()
    _CURRENT.set(way)
    return way


def current_way_back() -> WayBack | None:
    """Return the way back of the request that is handled; None where nobody measures it, or of a copy."""
    return None if is_copy() else _CURRENT.get()


def note_decided() -> None:
    """Note that it is decided now what becomes of the request that is handled."""
    if (way_back := current_way_back()) is not None:
        way_back.decided()
