"""The clocks of a service: one for deadlines, and one for times that are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

LEAP = 3600.0  # seconds that the machine's clock may be ahead of the time that has passed
PATIENCE = 3600.0  # seconds after which a longer leap is believed

Clock = Callable[[], float]


def loop_clock() -> Clock:
    """Return a clock that counts the seconds since this call, and runs with the timers of the present event loop."""
    loop = asyncio.get_running_loop()
    origin = loop.time()
    return lambda: loop.time() - origin


class PatientClock:
    """Gives seconds since 1970, by the machine's clock, which may be set.

    A clock that is set back is followed at once: nothing grows old by it. One that leaps ahead is followed after an hour:
    until then time passes as usual, and if it is set back meanwhile, nothing has happened. A machine that slept (its clock
    leaps, too) is followed an hour after it woke.
    """

    def __init__(self, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """`steady` gives seconds since any moment, and is never set."""
        self._clock, self._steady = clock, steady
        self._at, self._passed = clock(), steady()  # when the clock was last followed
        self._leapt: float | None = None

    def __call__(self) -> float:
        at, passed = self._clock(), self._steady()
        expected = self._at + passed - self._passed
        if at > expected + LEAP:
            self._leapt = passed if self._leapt is None else self._leapt
            if passed - self._leapt < PATIENCE:
                return expected
        self._at, self._passed, self._leapt = at, passed, None
        return at
