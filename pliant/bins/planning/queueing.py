"""Devices per runtime by the time that requests would wait; unlike the published objective this sees bursts.

The last window is divided into intervals. The backlog of a runtime's m devices follows Lindley's recursion on the work
that arrived, so bursts of an interval or longer count as they were. Within an interval the wait is that of M/D/m
(Sakasegawa's approximation, halved as service times do not vary). The objective leaves out requests that go to a longer
runtime because it is free. The exact minimum is found by a dynamic programme, in which a runtime without devices leaves
its requests to the next longer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]


def allocate_by_delay(
    count_IT: Counts, seconds: Sequence[float], first: Sequence[int], devices: int, interval: float
) -> list[int]:
    """Return the devices per runtime with the least total delay.

    `count_IT`: requests by runtime and interval of `interval` seconds; `seconds`: of one request; `first[i]`: the first
    runtime of the stream that runtime i belongs to.
    """
    from pliant.bins.planning.queueing_kernel import best_counts

    arrays = np.asarray(seconds, np.float64), np.asarray(first, np.int64)
    return [int(count) for count in best_counts(np.ascontiguousarray(count_IT, np.float64), *arrays, interval, devices)]


def delay(count_T: Sequence[float], seconds: float, interval: float, devices: int) -> float:
    """Return the seconds that these requests spend in all on `devices` devices, as the kernel does, in plain Python."""
    if not sum(count_T):
        return 0.0
    if devices == 0:
        return inf
    backlog = total = 0.0
    for count in count_T:
        after = max(backlog + count * seconds - devices * interval, 0.0)
        busy = min(count * seconds / (devices * interval), 0.99)
        wait = 0.5 * seconds * busy ** (sqrt(2 * (devices + 1)) - 1) / (devices * (1 - busy))
        total += count * (0.5 * (backlog + after) / devices + wait + seconds)
        backlog = after
    return total
