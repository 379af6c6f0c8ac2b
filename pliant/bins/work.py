"""What a device runs next, as the pools of the bins scheduler hand it out, and how many texts go into one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pliant.protocol import Request

Requests = tuple[Request, ...]

LEAST_GAIN = 1.05  # a larger batch must raise the texts per second by this factor


class Work(NamedTuple):
    """One launch. `kind` "run", or "load" of a runtime (then no requests)."""

    requests: Requests
    setting: int
    seconds: float  # by the profile
    kind: str = "run"


def until(request: Request, margin: float) -> float:
    """By when its launch must have ended: its deadline, less what is kept for the way back to the caller."""
    return request.deadline - margin * (request.deadline - request.arrival)


Cost = Callable[[int, int], tuple[int, float]]
"""(tokens of the longest, texts) -> the launch's setting and seconds."""


def batch_size(
    requests: Sequence[Request],
    ladder: Sequence[int],
    cost: Cost,
    ends: Callable[[Request], float],
    now: float,
    waiting: float = 0.0,
) -> int:
    """How many of the first `requests` run in one launch: the number of most texts per second, of those in `ladder`.

    Not so many that these and those behind them would on average end later than if these ran one after the other (`waiting`:
    requests for this device, these included), and no request misses by it the end that it must have (`ends`, a time) and
    would have if it ran alone now.
    """
    if len(requests) == 1:
        return 1
    longest, best = requests[0].length, 1
    alone = cost(longest, 1)[1]
    rate = 1.0 / alone
    first_end = float("inf")
    for index, request in enumerate(requests, start=1):
        longest = max(longest, request.length)
        end = ends(request)
        if now + cost(request.length, 1)[1] <= end:
            first_end = min(first_end, end)
        if index == 1 or index not in ladder:
            continue
        seconds = cost(longest, index)[1]
        if now + seconds > first_end:
            break
        behind = max(waiting - index, 0.0)
        one_by_one = index * alone * ((index + 1) / 2 + behind)
        if (index + behind) * seconds > one_by_one:  # no break: 4 texts run as 8 where there is no shape for 4
            continue
        if index / seconds >= LEAST_GAIN * rate:
            best, rate = index, index / seconds
    return best
