"""Devices per runtime by the time that requests would wait; unlike the published objective this sees bursts.

The last window is divided into intervals. The backlog of a runtime's m devices follows Lindley's recursion on the work
that arrived, so bursts of an interval or longer count as they were. Within an interval the wait is that of M/D/m
(Sakasegawa's approximation, halved as service times do not vary). The objective leaves out requests that go to a longer
runtime because it is free.
"""

# mypy: ignore-errors
# numba infers the types

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True)
def delays(counts_T, seconds, interval, devices):
    """Return [G + 1] the seconds that these requests spend in all on 0 (infinite, if there are any), 1, ... G devices."""
    cost = np.zeros(devices + 1)
    if counts_T.sum() == 0:
        return cost
    cost[0] = np.inf
    for m in range(1, devices + 1):
        backlog = 0.0
        root = np.sqrt(2.0 * (m + 1.0)) - 1.0
        for t in range(len(counts_T)):
            work = counts_T[t] * seconds
            after = max(backlog + work - m * interval, 0.0)
            busy = min(work / (m * interval), 0.99)
            wait = 0.5 * (backlog + after) / m + 0.5 * seconds * busy**root / (m * (1.0 - busy))
            cost[m] += counts_T[t] * (wait + seconds)
            backlog = after
    return cost


@numba.njit(cache=True)
def best_counts(counts_IT, seconds_I, first_I, interval, devices):
    """Return [I] devices of each runtime, exact by a dynamic programme over (runtimes, devices).

    `first_I`: the first runtime of each one's stream. A runtime without devices leaves its requests to the next one of
    its stream that has any; the last of a stream has at least one. All 0 where there are too few devices.
    """
    runtimes = len(seconds_I)
    least = np.full((runtimes + 1, devices + 1), np.inf)
    least[0, 0] = 0.0
    took = np.zeros((runtimes + 1, devices + 1), np.int64)
    origin = np.zeros((runtimes + 1, devices + 1), np.int64)
    for j in range(runtimes):
        total_T = np.zeros(counts_IT.shape[1])
        for i in range(j, first_I[j] - 1, -1):  # runtime j serves the bins i..j
            total_T = total_T + counts_IT[i]
            cost_M = delays(total_T, seconds_I[j], interval, devices)
            for g in range(devices + 1):
                if least[i, g] == np.inf:
                    continue
                for m in range(1, devices - g + 1):
                    total = least[i, g] + cost_M[m]
                    if total < least[j + 1, g + m]:
                        least[j + 1, g + m], took[j + 1, g + m], origin[j + 1, g + m] = total, m, i
    chosen = np.zeros(runtimes, np.int64)
    j, g = runtimes, devices
    if least[j, g] == np.inf:
        return chosen
    while j > 0:
        chosen[j - 1] = took[j, g]
        j, g = origin[j, g], g - took[j, g]
    return chosen
