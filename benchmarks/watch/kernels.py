"""Whole streams through detectors in compiled code, far faster than value by value.

`totals` is the wealth of pliant/watch's bets after every block. `page_hinkley` and `kswin` give the statistic that river's
detectors of these names compare with a threshold, so one pass shows what every threshold would have done until its first
alarm. Tests hold each equal to the original.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
# numba infers the types

from __future__ import annotations

import numba
import numpy as np

MIN_INSTANCES = 30  # of Page-Hinkley, as river has it


@numba.njit(cache=True)
def totals(factors, fresh, weights, initial):
    """Return the summed wealth [T] from factors [T, bets] and what flows in for each block [T]; first it is `initial`."""
    wealth, result = initial * weights, np.empty(len(fresh))
    for step in range(len(fresh)):
        total = 0.0
        for bet in range(len(weights)):
            wealth[bet] = min((wealth[bet] + fresh[step] * weights[bet]) * factors[step, bet], 1e100)
            total += wealth[bet]
        result[step] = total
    return result


@numba.njit(cache=True)
def page_hinkley(values, delta, forgetting):
    """Return after each value [T] what the mode "both" compares with its threshold."""
    result = np.zeros(len(values))
    mean, up, down, least, most = 0.0, 0.0, 0.0, np.inf, -1.0
    for step in range(len(values)):
        mean += (values[step] - mean) / (step + 1)
        deviation = values[step] - mean
        up = forgetting * up + deviation - delta
        down = forgetting * down + deviation + delta
        least, most = min(least, up), max(most, down)
        if step + 1 >= MIN_INSTANCES:
            result[step] = max(up - least, most - down)
    return result


@numba.njit(cache=True)
def distance(first, second):
    """Return the Kolmogorov-Smirnov distance of two samples of one size."""
    first, second = np.sort(first), np.sort(second)
    size, i, j, largest = len(first), 0, 0, 0
    while i < size and j < size:
        value = min(first[i], second[j])
        while i < size and first[i] == value:
            i += 1
        while j < size and second[j] == value:
            j += 1
        largest = max(largest, abs(i - j))
    return largest / size


@numba.njit(cache=True)
def kswin(values, window, recent, stride, seed):
    """Return after each value [T] the distance of the `recent` last values from as many of the window's others.

    It is computed at every `stride`-th value; between them and before the window is full it is 0.
    """
    np.random.seed(seed)
    result, order = np.zeros(len(values)), np.arange(window - recent)
    for step in range(window - 1, len(values)):
        if (step + 1) % stride:
            continue
        for place in range(recent):
            other = np.random.randint(place, len(order))
            order[place], order[other] = order[other], order[place]
        start = step + 1 - window
        result[step] = distance(values[start + order[:recent]], values[step + 1 - recent : step + 1])
    return result
