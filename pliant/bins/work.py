"""What a device runs next, as the pools of the bins scheduler return it, and how many texts go into one launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pliant.protocol import Request

Requests = tuple[Request, ...]

MIN_GAIN = 1.05  # factor by which a larger batch must raise the texts per second


class Work(NamedTuple):
    """One launch: `kind` is "run", or "load" of a runtime (then without requests)."""

    requests: Requests
    setting: int
    seconds: float  # expected, by the profile
    kind: str = "run"


def latest_end(request: Request, margin: float) -> float:
    """Return when its launch must have ended: the deadline less `margin`, the share of time reserved for the way back."""
    return request.deadline - margin * (request.deadline - request.arrival)


Cost = Callable[[int, int], tuple[int, float]]
"""From (tokens of the longest text, texts) to the setting and seconds of their launch."""


def batch_size(
    requests: Sequence[Request],
    ladder: Sequence[int],
    cost: Cost,
    ends: Callable[[Request], float],
    now: float,
    waiting: float = 0.0,
    slowdown: float = 1.0,
) -> int:
    """Return how many of the first `requests` run in one launch: the number in `ladder` with the most texts per second.

    Larger numbers are excluded in two cases. One: these requests and those behind them would on average end later than
    if these ran one after the other (`waiting`: requests for this device, these included). Two: a request would miss
    the time by which it must end (`ends`) but would meet it if it ran alone now. `slowdown` corrects the profile's seconds.
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
        if now + cost(request.length, 1)[1] * slowdown <= end:
            first_end = min(first_end, end)
        if index == 1 or index not in ladder:
            continue
        seconds = cost(longest, index)[1]
        if now + seconds * slowdown > first_end:
            break
        behind = max(waiting - index, 0.0)
        one_by_one = index * alone * ((index + 1) / 2 + behind)
        if (index + behind) * seconds > one_by_one:  # No break: 4 texts run as 8 where there is no shape for 4.
            continue
        if index / seconds >= MIN_GAIN * rate:
            best, rate = index, index / seconds
    return best
