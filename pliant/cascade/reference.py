"""The cascade's reference load: from half to twice the devices' capacity, in quiet and loud stretches, with random
texts.

The promotion gate simulates it and the replay over HTTP sends it, so that both measure the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pliant.protocol import Request
from pliant.workload import RequestKind, Segment, requests, segment_of, stretches


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Arrival rates as shares of the capacity. Every quiet stretch is followed by a loud one."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # of a stretch
    urgent: tuple[float, float] = (0.3, 1.0)  # seconds to the deadline and utility, for half of each task's requests
    patient: tuple[float, float] = (1.0, 0.5)  # the same for the other half


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on. `rows`: the text of each, in its task. `loud`: ids that arrive in a loud stretch."""

    requests: tuple[Request, ...]
    rows: tuple[int, ...]
    segments: tuple[Segment, ...]
    loud: frozenset[int]


def reference_load(
    lengths: Mapping[str, Sequence[int]], capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Return Poisson arrivals at rates relative to `capacity` (requests/s), the stretches in random order.

    `lengths`: task -> the tokens of its texts, as the first level reads them.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    segments, times = stretches(config.quiet, config.loud, capacity, config.seconds, rng)
    where = segment_of(times, segments)
    kinds = [RequestKind(task, *kind) for task in lengths for kind in (config.urgent, config.patient)]
    drawn = requests(times, kinds, rng)
    rows = [int(rng.integers(len(lengths[request.task]))) for request in drawn]
    sized = [replace(request, length=int(lengths[request.task][row])) for request, row in zip(drawn, rows, strict=True)]
    return ReferenceLoad(
        tuple(sized), tuple(rows), tuple(segments), frozenset(r.id for r, s in zip(sized, where, strict=True) if s % 2)
    )
