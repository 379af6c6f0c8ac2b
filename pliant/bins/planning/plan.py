"""How many devices each runtime gets in the next period, from the requests of the last one; and which devices swap.

Three plans (`Config.plan`): "published" (allocate.py), "queueing" (queueing.py), and "better": both are tried on the last
window by the compiled simulator, under the dispatch in use, and the one of less mean latency is kept. What is in place stays
where the new one does better by less than `WORTH`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.bins.knowledge import Knowledge
from pliant.bins.planning.allocate import ATTEMPTS, Demand, allocate_streams
from pliant.bins.planning.queueing import allocate_by_delay
from pliant.bins.replay import Pool, replay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REPLAYED = 20_000  # requests at most, the latest: planning must not hold up what is served
WORTH = 0.02  # a swap occupies a device for a second
INTERVALS = 64  # that a window is cut into
SEARCH = ATTEMPTS[
    :2
]  # of the published programme: tens of milliseconds, proven exact but for pools that are overloaded
BACKLOG = 512  # requests up to which L_i(B) is written down


@dataclass(frozen=True, slots=True)
class Window:
    """The arrivals of `seconds`."""

    seconds: float
    times: Sequence[float] | Floats = ()
    runtimes: Sequence[int] | Ints = ()  # the shortest one with sufficient length

    @property
    def interval(self) -> float:
        """Seconds over which requests are counted."""
        return self.seconds / INTERVALS

    def counts(self, runtimes: int) -> Floats:
        """[I, T] requests by runtime and interval."""
        made = np.zeros((runtimes, INTERVALS))
        if len(self.times):
            at = ((np.asarray(self.times) - self.times[0]) / self.interval).astype(np.int64)
            np.add.at(made, (np.asarray(self.runtimes), np.minimum(at, made.shape[1] - 1)), 1.0)
        return made


def demands(knowledge: Knowledge, requests: Sequence[float]) -> list[list[Demand]]:
    """The published programme's inputs. `requests`: mean number of each runtime's bin within its SLO.

    B requests outstanding on a device that serves one after the other wait for (B - 1) / 2 others on average.
    """
    made: list[list[Demand]] = []
    for stream in knowledge.streams:
        made.append([])
        for at, runtime in enumerate(stream.runtimes, start=stream.first):
            alone = runtime.alone
            latency = tuple(alone * max(backlog + 1, 2) / 2 for backlog in range(BACKLOG))
            made[-1].append(Demand(requests[at], max(stream.slo // alone, 1.0), latency))
    return made


def plan(
    knowledge: Knowledge, window: Window, devices: int, which: str, dispatch: str, held: Sequence[int]
) -> list[int]:
    """Devices per runtime. `held`: every device's runtime now. Each stream gets a device that takes all its lengths."""
    if which == "published":
        return published(knowledge, window, devices)
    by_delay = queueing(knowledge, window, devices)
    if which == "queueing":
        return by_delay
    now = Counter(held)
    present = [now[runtime] for runtime in range(len(knowledge.runtimes))]
    whole = all(present[stream.first + len(stream.runtimes) - 1] for stream in knowledge.streams)
    made = by_delay, published(knowledge, window, devices)
    tried = {tuple(counts): None for counts in ((present, *made) if whole else made)}
    pool = Pool.of(knowledge, dispatch)
    times, runtimes = np.asarray(window.times[-REPLAYED:]), np.asarray(window.runtimes[-REPLAYED:], np.int64)
    found = {counts: replay(pool, times, runtimes, counts) for counts in tried if sum(counts) == devices}
    best = min(found, key=lambda counts: found[counts])
    kept = tuple(present)
    return list(kept if found.get(kept, np.inf) <= found[best] * (1 + WORTH) else best)


def published(knowledge: Knowledge, window: Window, devices: int) -> list[int]:
    """By the published programme."""
    slos = [knowledge.streams[runtime.stream].slo for runtime in knowledge.runtimes]
    came = np.bincount(np.asarray(window.runtimes, np.int64), minlength=len(slos))
    found = allocate_streams(demands(knowledge, (came * slos / window.seconds).tolist()), devices, SEARCH)
    return [count for one in found for count in one.counts]


def queueing(knowledge: Knowledge, window: Window, devices: int) -> list[int]:
    """By what requests would wait."""
    runtimes = knowledge.runtimes
    first = [knowledge.streams[runtime.stream].first for runtime in runtimes]
    return allocate_by_delay(
        window.counts(len(runtimes)), [one.alone for one in runtimes], first, devices, window.interval
    )


def start_plan(knowledge: Knowledge, workers: int, shares: Sequence[float] = ()) -> list[int]:
    """The runtime of every device before any request: by the lengths observed, streams alike, at half load.

    `shares` of the requests that each runtime's bin gets, if others than those are expected.
    """
    runtimes = knowledge.runtimes
    alike = shares or [share / len(knowledge.streams) for stream in knowledge.streams for share in stream.shares]
    work = sum(share * runtime.alone for share, runtime in zip(alike, runtimes, strict=True))
    rate = 0.5 * workers / work
    slos = [knowledge.streams[runtime.stream].slo for runtime in runtimes]
    found = allocate_streams(
        demands(knowledge, [r * s * rate for r, s in zip(alike, slos, strict=True)]), workers, SEARCH
    )
    counts = [count for one in found for count in one.counts]
    return [runtime for runtime, count in enumerate(counts) for _ in range(count)]


def swaps(held: Sequence[int], counts: Sequence[int], load: Sequence[float]) -> list[tuple[int, int]]:
    """(device, its new runtime): the fewest changes that lead to `counts`, by the devices of least `load`.

    `held`: runtime of every device; -1 for those that are not to be touched.
    """
    surplus = Counter(one for one in held if one >= 0)
    surplus.subtract(dict(enumerate(counts)))
    wanted = [runtime for runtime in range(len(counts)) for _ in range(-surplus[runtime])]
    givers: list[int] = []
    for device in sorted((d for d, runtime in enumerate(held) if runtime >= 0), key=lambda d: (load[d], d)):
        if surplus[held[device]] > 0:
            surplus[held[device]] -= 1
            givers.append(device)
    return list(zip(givers, wanted, strict=False))
