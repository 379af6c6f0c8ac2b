"""How many devices each runtime gets in the next period, from the requests of the last one, and which devices swap.

There are three plans (`Config.plan`): "published" (allocate.py), "queueing" (queueing_kernel.py), and "better". The last
one replays both on the last window in the compiled simulator, under the dispatch in use, and takes the one of lower mean
latency. The present allocation stays unless the new one is better by more than `WORTH`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.bins.knowledge import Knowledge
from pliant.bins.planning.allocate import ATTEMPTS, Demand, allocate_streams
from pliant.bins.replay import Pool, replay

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

REPLAYED = 20_000  # latest requests at most, as planning must not delay what is served
WORTH = 0.02  # share of the mean latency; a swap occupies a device for about a second
INTERVALS = 64  # of a window
SEARCH = ATTEMPTS[:2]  # tens of milliseconds for the published programme; proven exact unless overloaded
BACKLOG = 512  # values of L_i(B), for B from 0 on


@dataclass(frozen=True, slots=True)
class Window:
    """The requests that arrived within `seconds`."""

    seconds: float
    times: Sequence[float] | Floats = ()
    runtimes: Sequence[int] | Ints = ()  # per request the shortest one that is long enough

    @property
    def interval(self) -> float:
        """Seconds over which requests are counted."""
        return self.seconds / INTERVALS

    def counts(self, runtimes: int) -> Floats:
        """Return [I, T] the requests by runtime and interval."""
        count_IT = np.zeros((runtimes, INTERVALS))
        if len(self.times):
            interval_N = ((np.asarray(self.times) - self.times[0]) / self.interval).astype(np.int64)
            np.add.at(count_IT, (np.asarray(self.runtimes), np.minimum(interval_N, count_IT.shape[1] - 1)), 1.0)
        return count_IT


def demands(knowledge: Knowledge, requests: Sequence[float]) -> list[list[Demand]]:
    """Return the published programme's inputs, per stream. `requests`: mean number per bin within its SLO.

    With B requests outstanding, a device that serves one after the other makes each wait for (B - 1) / 2 others on
    average.
    """
    by_stream: list[list[Demand]] = []
    for stream in knowledge.streams:
        by_stream.append([])
        for at, runtime in enumerate(stream.runtimes, start=stream.first):
            alone = runtime.alone
            latency = tuple(alone * max(backlog + 1, 2) / 2 for backlog in range(BACKLOG))
            by_stream[-1].append(Demand(requests[at], max(stream.slo // alone, 1.0), latency))
    return by_stream


def plan(
    knowledge: Knowledge, window: Window, devices: int, objective: str, dispatch: str, held: Sequence[int]
) -> list[int]:
    """Return the devices per runtime, by one of the three plans.

    `held`: every device's runtime now. Each stream keeps a device with its longest runtime.
    """
    if objective == "published":
        return published(knowledge, window, devices)
    by_delay = queueing(knowledge, window, devices)
    if objective == "queueing":
        return by_delay
    now = Counter(held)
    present = [now[runtime] for runtime in range(len(knowledge.runtimes))]
    complete = all(present[stream.first + len(stream.runtimes) - 1] for stream in knowledge.streams)
    plans = by_delay, published(knowledge, window, devices)
    candidates = {tuple(counts): None for counts in ((present, *plans) if complete else plans)}
    pool = Pool.of(knowledge, dispatch)
    times, runtimes = np.asarray(window.times[-REPLAYED:]), np.asarray(window.runtimes[-REPLAYED:], np.int64)
    latencies = {counts: replay(pool, times, runtimes, counts) for counts in candidates if sum(counts) == devices}
    best = min(latencies, key=lambda counts: latencies[counts])
    present_counts = tuple(present)
    return list(present_counts if latencies.get(present_counts, np.inf) <= latencies[best] * (1 + WORTH) else best)


def published(knowledge: Knowledge, window: Window, devices: int) -> list[int]:
    """Return the devices per runtime by the published programme."""
    slos = [knowledge.streams[runtime.stream].slo for runtime in knowledge.runtimes]
    requests = np.bincount(np.asarray(window.runtimes, np.int64), minlength=len(slos))
    allocations = allocate_streams(demands(knowledge, (requests * slos / window.seconds).tolist()), devices, SEARCH)
    return [count for allocation in allocations for count in allocation.counts]


def queueing(knowledge: Knowledge, window: Window, devices: int) -> list[int]:
    """Return the devices per runtime by the time that requests would wait."""
    from pliant.bins.planning.queueing_kernel import best_counts

    runtimes = knowledge.runtimes
    seconds_I = np.array([runtime.alone for runtime in runtimes], np.float64)
    first_I = np.array([knowledge.streams[runtime.stream].first for runtime in runtimes], np.int64)
    counts_I = best_counts(window.counts(len(runtimes)), seconds_I, first_I, window.interval, devices)
    return [int(count) for count in counts_I]


def start_plan(knowledge: Knowledge, workers: int, shares: Sequence[float] = ()) -> list[int]:
    """Return the runtime of every device before any request: by the observed lengths, streams alike, at half load.

    `shares`: of the requests by runtime, if others than the observed ones are expected.
    """
    runtimes = knowledge.runtimes
    expected = shares or [share / len(knowledge.streams) for stream in knowledge.streams for share in stream.shares]
    work = sum(share * runtime.alone for share, runtime in zip(expected, runtimes, strict=True))
    rate = 0.5 * workers / work
    slos = [knowledge.streams[runtime.stream].slo for runtime in runtimes]
    allocations = allocate_streams(
        demands(knowledge, [share * slo * rate for share, slo in zip(expected, slos, strict=True)]), workers, SEARCH
    )
    counts = [count for allocation in allocations for count in allocation.counts]
    return [runtime for runtime, count in enumerate(counts) for _ in range(count)]


def swaps(held: Sequence[int], counts: Sequence[int], load: Sequence[float]) -> list[tuple[int, int]]:
    """Return (device, new runtime) of the fewest swaps that lead to `counts`, on the devices of least `load`.

    `held`: runtime of every device; -1 for those that must not change.
    """
    surplus = Counter(runtime for runtime in held if runtime >= 0)
    surplus.subtract(dict(enumerate(counts)))
    wanted = [runtime for runtime in range(len(counts)) for _ in range(-surplus[runtime])]
    givers: list[int] = []
    for device in sorted((d for d, runtime in enumerate(held) if runtime >= 0), key=lambda d: (load[d], d)):
        if surplus[held[device]] > 0:
            surplus[held[device]] -= 1
            givers.append(device)
    return list(zip(givers, wanted, strict=False))
