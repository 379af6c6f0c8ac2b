"""The clock of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Clock = Callable[[], float]


def loop_clock() -> Clock:
    """Seconds since this call on the running loop's clock: small numbers, and the same clock as the loop's timers."""
    loop = asyncio.get_running_loop()
    origin = loop.time()
    return lambda: loop.time() - origin
