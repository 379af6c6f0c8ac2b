"""Devices per runtime by what requests would wait: unlike the published objective it knows variability and bursts.

The last window is cut into intervals. The backlog of a runtime's m devices follows Lindley's recursion on the work that
really came, so bursts of every length from an interval up count as they were; within an interval the wait is that of M/D/m
(Sakasegawa's approximation, halved as service does not vary). What the objective leaves out: requests that go to a longer
runtime because that is free. The exact least is found by a dynamic programme, in which a runtime without devices leaves its
requests to the next longer one.
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
    """Devices per runtime with the least delay in all. `count_IT`: requests by runtime and interval of `interval` seconds.

    `seconds` of one request; `first[i]`: the first runtime of the stream that runtime i belongs to.
    """
    from pliant.bins.planning.queueing_kernel import best_counts

    told = np.asarray(seconds, np.float64), np.asarray(first, np.int64)
    return [int(n) for n in best_counts(np.ascontiguousarray(count_IT, np.float64), *told, interval, devices)]


def delay(count_T: Sequence[float], seconds: float, interval: float, devices: int) -> float:
    """Seconds that these requests spend in all on `devices` devices; the kernel's plain counterpart."""
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
