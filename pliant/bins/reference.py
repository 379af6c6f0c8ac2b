"""The bins system's reference load: from half to twice the devices' capacity, in quiet and loud stretches, observed lengths.

Used by the promotion gate (in the simulator), so that champion and challenger are judged by the same requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.bins.knowledge import Knowledge
from pliant.protocol import Request
from pliant.workload import Segment, alternating, piecewise


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Shares are of the capacity; every quiet stretch is followed by a loud one."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, and the stretches of their rate."""

    requests: tuple[Request, ...]
    segments: tuple[Segment, ...]


def capacity(knowledge: Knowledge) -> float:
    """Requests a second of one device, streams alike, one at a time."""
    means = [stream.mean_seconds for stream in knowledge.streams]
    return len(means) / sum(means)


def reference_load(
    lengths: Mapping[str, Sequence[int]],
    slos: Mapping[str, float],
    capacity: float,
    seed: int,
    config: ReferenceConfig | None = None,
) -> ReferenceLoad:
    """Poisson arrivals at rates relative to `capacity` (requests/s), loud stretches in random order; streams alike.

    `lengths`: of each stream requests as they were observed, in tokens; `slos`: seconds from arrival to deadline.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    loud = [share * capacity for share in rng.permutation(config.loud)]
    quiet = [share * capacity for share in rng.permutation(config.quiet)]
    segments = alternating(quiet, loud, config.seconds)
    times, names = piecewise(segments, rng), list(lengths)
    which = rng.integers(len(names), size=len(times))
    return ReferenceLoad(
        tuple(
            Request(i, float(at), float(at) + slos[name], name, 1.0, int(rng.choice(lengths[name])))
            for i, (at, name) in enumerate(zip(times, (names[k] for k in which), strict=True))
        ),
        tuple(segments),
    )
