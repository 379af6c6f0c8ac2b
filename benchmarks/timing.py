"""How long calls take."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median


def seconds_of(call: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def medians_in_turns(calls: Sequence[Callable[[], object]], rounds: int, warmup: int = 2) -> list[float]:
    """Return the median wall seconds of each call over `rounds` rounds, in each of which every call runs once.

    So whatever slows the machine for a while slows all alike. `warmup` rounds before them do not count.
    """
    seconds = [[seconds_of(call) for call in calls] for _ in range(warmup + rounds)]
    return [median(column) for column in zip(*seconds[warmup:], strict=True)]
