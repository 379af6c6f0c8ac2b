"""The compiled simulator, for judging plans and policies: arrays in, times out. See replay_kernel.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pliant.bins.dispatch import DISPATCHES
from pliant.bins.knowledge import Knowledge

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_SWAPS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Pool:
    """What stays the same during a replay: the runtimes (R of them) and the policy."""

    seconds: Floats  # [R] seconds of one request
    capacity: Floats  # [R] requests within the SLO
    end: Ints  # [R] one beyond the last runtime of the same stream
    dynamic: NDArray[np.bool_]  # [R] whether a request takes its own seconds instead
    policy: int  # index into DISPATCHES

    @classmethod
    def of(cls, knowledge: Knowledge, dispatch: str) -> Pool:
        """Return the pool of these runtimes under the policy `dispatch`."""
        runtimes = knowledge.runtimes
        slo = np.array([knowledge.streams[runtime.stream].slo for runtime in runtimes])
        seconds = np.array([runtime.alone for runtime in runtimes])
        ends = [(stream := knowledge.streams[runtime.stream]).first + len(stream.runtimes) for runtime in runtimes]
        dynamic = np.array([runtime.table is not None for runtime in runtimes])
        capacity = np.maximum(slo // seconds, 1.0)
        return cls(seconds, capacity, np.array(ends, np.int64), dynamic, DISPATCHES.index(dispatch))


class Replay:
    """Devices that serve a trace part by part, and may swap runtimes between two parts."""

    def __init__(self, pool: Pool, held: Sequence[int], requests: int) -> None:
        """Start with the runtimes `held`, one per device; `requests`: the most that can be outstanding at once."""
        from pliant.bins.replay_kernel import join

        self._pool, devices, runtimes = pool, len(held), len(pool.seconds)
        self.held = np.array(held, np.int64)
        holds, outstanding_W, count = np.full(devices, -1), np.zeros(devices, np.int64), np.zeros(1, np.int64)
        heap, size = np.zeros((runtimes, devices), np.int64), np.zeros(runtimes, np.int64)
        self.free_at = np.zeros(devices)
        self._loads = (holds, self.free_at, outstanding_W, heap, size, np.zeros(devices, np.int64))
        for device, runtime in enumerate(held):
            join(device, runtime, pool.policy == 0, self._loads)
        most_ends = requests + 1 if pool.policy else 1
        self._pending = (np.zeros(most_ends), np.zeros(most_ends, np.int64), count)

    def serve(
        self,
        times: Floats,
        runtimes: Ints,
        own: Floats | None = None,
        swaps: Sequence[tuple[int, int]] = (),
        begin: float = 0.0,
        at_once: int = 1,
        load_seconds: float = 1.0,
    ) -> Floats:
        """Return the time at which each of these requests ends; infinite where no device takes it.

        `runtimes`: per request the shortest runtime that is long enough; `own`: its seconds on a dynamic runtime. From
        time `begin` on, the devices of `swaps` load their new runtimes, `at_once` at a time, `load_seconds` each.
        """
        from pliant.bins.replay_kernel import serve_single

        pool, ends = self._pool, np.empty(len(times))
        own = np.zeros(len(times)) if own is None else own
        swapping = np.array([worker for worker, _ in swaps], np.int64) if swaps else NO_SWAPS
        new_runtimes = np.array([runtime for _, runtime in swaps], np.int64) if swaps else NO_SWAPS
        ranges, services = (runtimes, pool.end[runtimes]), (own, pool.dynamic, pool.seconds, pool.capacity)
        changes = (swapping, new_runtimes, at_once, load_seconds, begin)
        serve_single(pool.policy, times, ranges, services, self._loads, self._pending, changes, ends)
        self.held[swapping] = new_runtimes
        return ends


def replay(pool: Pool, times: Floats, runtimes: Ints, counts: Sequence[int]) -> float:
    """Return the mean latency of these requests on idle devices, in seconds; infinite if some are never served."""
    if not len(times):
        return 0.0
    held = [runtime for runtime, count in enumerate(counts) for _ in range(count)]
    return float(np.mean(Replay(pool, held, len(times)).serve(times, runtimes) - times))


def shared(times: Floats, seconds: Floats, patience: Floats, until: Floats, devices: int) -> Floats:
    """Return the time at which each request ends where every device holds every runtime (placement "shared")."""
    from pliant.bins.replay_kernel import serve_shared

    ends = np.empty(len(times))
    serve_shared(times, seconds, patience, until, devices, ends)
    return ends
