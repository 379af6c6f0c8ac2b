"""The compiled simulator for whoever judges plans and policies: arrays in, latencies out. See replay_kernel.py."""

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


@dataclass(frozen=True)
class Pool:
    """What does not change: the runtimes and the policy."""

    seconds: Floats  # [R] of one request
    capacity: Floats  # [R] within the SLO
    end: Ints  # [R] one beyond the last runtime of the same stream
    dynamic: NDArray[np.bool_]  # [R] takes each request's own seconds instead
    policy: int

    @classmethod
    def of(cls, knowledge: Knowledge, dispatch: str) -> Pool:
        runtimes = knowledge.runtimes
        slo = np.array([knowledge.streams[runtime.stream].slo for runtime in runtimes])
        seconds = np.array([runtime.alone for runtime in runtimes])
        ends = [(s := knowledge.streams[one.stream]).first + len(s.runtimes) for one in runtimes]
        dynamic = np.array([runtime.table is not None for runtime in runtimes])
        capacity = np.maximum(slo // seconds, 1.0)
        return cls(seconds, capacity, np.array(ends, np.int64), dynamic, DISPATCHES.index(dispatch))


class Replay:
    """A pool of devices that serves a trace piece by piece, and may swap runtimes between two pieces."""

    def __init__(self, pool: Pool, held: Sequence[int], requests: int) -> None:
        """`held`: each device's runtime; `requests`: how many can be outstanding at most."""
        from pliant.bins.replay_kernel import join

        self._pool, devices, runtimes = pool, len(held), len(pool.seconds)
        self.held = np.array(held, np.int64)
        holds, out, count = np.full(devices, -1), np.zeros(devices, np.int64), np.zeros(1, np.int64)
        heap, size = np.zeros((runtimes, devices), np.int64), np.zeros(runtimes, np.int64)
        self.free_at = np.zeros(devices)
        books = (holds, self.free_at, out, heap, size, np.zeros(devices, np.int64))
        for device, runtime in enumerate(held):
            join(device, runtime, pool.policy == 0, *books)
        outstanding = requests + 1 if pool.policy else 1
        self._state = (*books, np.zeros(outstanding), np.zeros(outstanding, np.int64), count)

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
        """When each of these requests ends. `runtimes`: the shortest one with sufficient length; `own`: dynamic seconds.

        From `begin` on the devices of `swaps` load their new runtimes, `at_once` at a time.
        """
        from pliant.bins.replay_kernel import serve_single

        pool, done = self._pool, np.empty(len(times))
        own = np.zeros(len(times)) if own is None else own
        who = np.array([worker for worker, _ in swaps], np.int64) if swaps else NO_SWAPS
        to = np.array([runtime for _, runtime in swaps], np.int64) if swaps else NO_SWAPS
        facts = (own, pool.dynamic, pool.seconds, pool.capacity)
        changes = (who, to, at_once, load_seconds, begin)
        serve_single(pool.policy, times, runtimes, pool.end[runtimes], *facts, *self._state, *changes, done)
        self.held[who] = to
        return done


def replay(pool: Pool, times: Floats, runtimes: Ints, counts: Sequence[int]) -> float:
    """Mean latency of these requests on so many devices of each runtime, all idle before; infinite where some fail."""
    if not len(times):
        return 0.0
    held = [runtime for runtime, count in enumerate(counts) for _ in range(count)]
    return float(np.mean(Replay(pool, held, len(times)).serve(times, runtimes) - times))


def shared(times: Floats, seconds: Floats, patience: Floats, until: Floats, devices: int) -> Floats:
    """When each request ends where every device holds every runtime."""
    from pliant.bins.replay_kernel import serve_shared

    done = np.empty(len(times))
    serve_shared(times, seconds, patience, until, devices, done)
    return done
