"""How long a launch may take before its worker counts as hung: by the profile, never below a floor.

The floors do not come from the speed of a machine: `FLOOR` is what an operating system under load may hold up a process
that is ready to run, `FIRST` what kernels chosen at the first run of a model, or memory that was swapped out while
nothing ran, may add. An event loop that is held up itself does not count as time: see `within`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pliant.protocol import Launch

FLOOR = 2.0  # seconds that any launch may take
FIRST = 10.0  # the same for the first launch of a setting since the worker's start, and after a pause of `IDLE`
FACTOR = 10.0  # times the seconds that the scheduler expects
IDLE = 60.0  # seconds without a launch after which a worker's memory may have been swapped out
SLICES = 8  # parts of a limit that are waited for one by one

T = TypeVar("T")


class LaunchLimit:
    """The limit of one worker's launches; `most` seconds are the most, and the limit where nothing is expected."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._ran: set[int] = set()  # settings that have run since the worker's start
        self._last = float("-inf")  # when the last launch ended

    def seconds(self, launch: Launch, now: float) -> float:
        """Return how many seconds a launch that begins `now` may take."""
        if launch.expected <= 0:
            return self._most
        usual = launch.setting in self._ran and now - self._last < IDLE
        return min(self._most, max(FLOOR if usual else FIRST, FACTOR * launch.expected))

    def finished(self, launch: Launch, now: float) -> None:
        """Note that a launch has ended well."""
        self._ran.add(launch.setting)
        self._last = now

    def started(self) -> None:
        """Note that the worker's process is a new one, in which nothing has run but its warm-up."""
        self._ran.clear()


async def within(seconds: float, call: Awaitable[T]) -> T:
    """Return what the call returns. Raises `TimeoutError` if it takes longer, and what the call raises.

    The time is counted in parts. So an event loop that was held up for longer, as by a machine that stood still, has
    lost one part when it goes on, and finds the result that has come meanwhile.
    """
    async with asyncio.timeout(None) as timeout:
        parts = _Parts(seconds / SLICES, timeout)
        try:
            return await call
        finally:
            parts.end()


class _Parts:
    """Waits `SLICES` times for a part of a limit, in seconds, and then for its timeout at once.

    No function that calls itself: it would hold the call's task until the garbage collector comes, which would come for
    every few hundred requests.
    """

    def __init__(self, part: float, timeout: asyncio.Timeout) -> None:
        self._loop, self._part, self._timeout = asyncio.get_running_loop(), part, timeout
        self._left = SLICES - 1
        self._timer = self._loop.call_later(part, self._next)

    def _next(self) -> None:
        if self._left > 0:
            self._left -= 1
            self._timer = self._loop.call_later(self._part, self._next)
        else:
            self._timeout.reschedule(self._loop.time())

    def end(self) -> None:
        self._timer.cancel()
