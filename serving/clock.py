"""The clock of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Clock = Callable[[], float]


def loop_clock() -> Clock:
    """Return a clock that counts the seconds since this call, and runs with the timers of the present event loop."""
    loop = asyncio.get_running_loop()
    origin = loop.time()
    return lambda: loop.time() - origin
