"""Simulated devices of the bins system, on which a launch takes the profile's seconds for its shape; and a reference load.

Durations may be scattered log-normally by the generator that is passed in. The promotion gate simulates the reference load,
with calm stretches below the capacity and loud ones at up to twice of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pliant.bins.knowledge import Knowledge
from pliant.protocol import Failed, Finished, Launch, Request, Result
from pliant.workload import ReferenceConfig, ReferenceLoad

RESTART = 1.0  # seconds
TYPICAL = 500  # lengths that stand for all
JITTER = 0.05  # standard deviation of a simulated duration's logarithm


class SimulatedBins:
    """A function from a launch to its duration and end; pass it to `simulate` as `execute`."""

    def __init__(
        self,
        knowledge: Knowledge,
        requests: Sequence[Request],
        rng: np.random.Generator | None = None,
        jitter: float = 0.0,  # standard deviation of a duration's logarithm
    ) -> None:
        self._knowledge, self._rng, self._jitter = knowledge, rng, jitter
        self._lengths = {request.id: request.length for request in requests}
        self._runtimes = {setting: runtime for runtime in knowledge.runtimes for setting in runtime.settings}

    def __call__(self, launch: Launch) -> tuple[float, Finished | Failed]:
        """Return the seconds that the launch takes, and the event that ends it; a restart takes `RESTART` seconds."""
        if launch.kind != "run":
            seconds = self._knowledge.load_seconds if launch.kind == "load" else RESTART
            return seconds, Finished(launch.id, seconds)
        longest = max(self._lengths[request] for request in launch.requests)
        seconds = self._runtimes[launch.setting].cost(longest, len(launch.requests))[1]
        if self._rng is not None and self._jitter:
            seconds *= float(np.exp(self._jitter * self._rng.standard_normal()))
        return seconds, Finished(launch.id, seconds, tuple(map(Result, launch.requests)))


def capacity(knowledge: Knowledge) -> float:
    """Return the requests a second of one device, one at a time, with equally many requests of each stream."""
    means = [stream.mean_seconds for stream in knowledge.streams]
    return len(means) / sum(means)


def typical(lengths_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return [TYPICAL] lengths, ascending, distributed as those observed: `lengths_N` has the requests by length."""
    at_R = (np.arange(TYPICAL) + 0.5) / TYPICAL * lengths_N.sum()  # evenly spaced quantiles
    lengths: NDArray[np.int64] = np.searchsorted(np.cumsum(lengths_N), at_R, side="right")
    return lengths


def reference_load(
    lengths: Mapping[str, Sequence[int]],
    slos: Mapping[str, float],
    capacity: float,
    seed: int,
    config: ReferenceConfig | None = None,
) -> ReferenceLoad:
    """Return Poisson arrivals at rates relative to `capacity` (requests a second), with equally many of each stream.

    `lengths`: the observed lengths of each stream's requests, in tokens; `slos`: seconds from arrival to deadline.
    Quiet and loud rates are each taken in an order drawn from `seed`.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    segments, times = config.drawn(capacity, rng)
    names = list(lengths)
    stream_N = rng.integers(len(names), size=len(times))
    return ReferenceLoad(
        tuple(
            Request(i, float(at), float(at) + slos[name], name, 1.0, int(rng.choice(lengths[name])))
            for i, (at, name) in enumerate(zip(times, (names[stream] for stream in stream_N), strict=True))
        ),
        tuple(segments),
    )
