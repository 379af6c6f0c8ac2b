"""The reference load of the bins system: calm stretches below the capacity, loud ones at up to twice of it.

Lengths are those observed. The promotion gate simulates it, so champion and challenger are judged by the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.bins.knowledge import Knowledge
from pliant.protocol import Request
from pliant.workload import Segment, stretches


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Rates as shares of the capacity; a quiet and a loud (overloaded) stretch alternate."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, and the stretches of their rate."""

    requests: tuple[Request, ...]
    segments: tuple[Segment, ...]


def capacity(knowledge: Knowledge) -> float:
    """Return the requests a second of one device, one at a time, with equally many requests of each stream."""
    means = [stream.mean_seconds for stream in knowledge.streams]
    return len(means) / sum(means)


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
    segments, times = stretches(config.quiet, config.loud, capacity, config.seconds, rng)
    names = list(lengths)
    stream_N = rng.integers(len(names), size=len(times))
    return ReferenceLoad(
        tuple(
            Request(i, float(at), float(at) + slos[name], name, 1.0, int(rng.choice(lengths[name])))
            for i, (at, name) in enumerate(zip(times, (names[stream] for stream in stream_N), strict=True))
        ),
        tuple(segments),
    )
