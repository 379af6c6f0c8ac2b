"""The cascade's reference load: from half to twice the devices' capacity, in quiet and loud stretches, texts at random.

Used by the promotion gate (in the simulator) and by the replay over HTTP, so that both speak of the same load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pliant.protocol import Request
from pliant.workload import RequestKind, Segment, alternating, piecewise, requests, segment_of


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Shares are of the capacity; every quiet stretch is followed by a loud one."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch
    urgent: tuple[float, float] = (0.3, 1.0)  # deadline in seconds and utility of one half of each task's requests
    patient: tuple[float, float] = (1.0, 0.5)  # of the other half


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, the text of each (a row of its task), and which (by id) arrive in a loud stretch."""

    requests: tuple[Request, ...]
    rows: tuple[int, ...]
    segments: tuple[Segment, ...]
    loud: frozenset[int]


def reference_load(
    lengths: Mapping[str, Sequence[int]], capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Poisson arrivals at rates relative to `capacity` (requests/s); loud stretches in random order.

    `lengths`: of every task's texts, in tokens that the first level reads.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    loud = [share * capacity for share in rng.permutation(config.loud)]
    quiet = [share * capacity for share in rng.permutation(config.quiet)]
    segments = alternating(quiet, loud, config.seconds)
    times = piecewise(segments, rng)
    where = segment_of(times, segments)
    kinds = [RequestKind(task, *kind) for task in lengths for kind in (config.urgent, config.patient)]
    asked = requests(times, kinds, rng)
    rows = [int(rng.integers(len(lengths[request.task]))) for request in asked]
    made = [replace(request, length=int(lengths[request.task][row])) for request, row in zip(asked, rows, strict=True)]
    return ReferenceLoad(
        tuple(made), tuple(rows), tuple(segments), frozenset(r.id for r, s in zip(made, where, strict=True) if s % 2)
    )
