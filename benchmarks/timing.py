"""How long calls take."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
