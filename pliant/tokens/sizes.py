"""How many requests a batch of the default policy holds, by what batches of every size take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def full_size(seconds_N: Floats, longest: float, waste: float) -> int:
    """Return the size of a full batch at one setting: as many requests as `longest` seconds allow, or as avoid much waste.

    `waste`: the share of the best throughput that the size may give up. `seconds_N[n]`: seconds of n requests.
    """
    rate_N = np.arange(1, len(seconds_N)) / seconds_N[1:]
    thrifty = int((rate_N >= (1 - waste) * rate_N.max()).argmax()) + 1
    allowed = max(longest, float(seconds_N[thrifty]))  # what takes no longer costs nothing
    return max(thrifty, int(seconds_N.searchsorted(allowed, side="right")) - 1)


def first_sizes(seconds_N: Floats, sizes: Sequence[int]) -> list[int]:
    """Return for every number of requests up to the last size how many run first, so that all take least time.

    `sizes` ascend. Requests between two of them run as one batch, which takes as long as the larger, or as the smaller
    first and then the rest. The larger batches run first.
    """
    if len(sizes) == 1:
        return list(range(sizes[0] + 1))
    seconds = seconds_N.tolist()
    least, first = seconds[:1], [0]
    for count in range(1, sizes[-1] + 1):
        fewest, best = seconds[count], count
        for size in sizes:
            if size >= count:
                break
            if (taken := seconds[size] + least[count - size]) < fewest or (taken == fewest and best < count):
                fewest, best = taken, size
        least.append(fewest)
        first.append(best)
    return first
