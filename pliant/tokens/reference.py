"""The tokens system's reference load: from half to twice the device's capacity at gamma 0, in quiet and loud stretches.

Used by the promotion gate (in the simulator) and by the replay over HTTP, so that both speak of the same load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Request
from pliant.workload import RequestKind, Segment, alternating, piecewise, requests, segment_of


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Shares are of the capacity at gamma 0; every quiet stretch is followed by a loud one."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch
    urgent: tuple[float, float] = (0.6, 1.0)  # deadline in seconds and utility of one half of each task's requests
    patient: tuple[float, float] = (1.0, 0.3)  # of the other half


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, and which of them (by id) arrive in a loud stretch."""

    requests: tuple[Request, ...]
    segments: tuple[Segment, ...]
    loud: frozenset[int]


def kinds(tasks: Sequence[str], config: ReferenceConfig) -> list[RequestKind]:
    """Each task once urgent and once patient; all kinds are equally frequent."""
    return [RequestKind(task, *kind) for task in tasks for kind in (config.urgent, config.patient)]


def reference_load(
    tasks: Sequence[str], capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Poisson arrivals at rates relative to `capacity` (requests/s at gamma 0); loud stretches in random order."""
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    loud = [share * capacity for share in rng.permutation(config.loud)]
    quiet = [share * capacity for share in rng.permutation(config.quiet)]
    segments = alternating(quiet, loud, config.seconds)
    times = piecewise(segments, rng)
    where = segment_of(times, segments)
    made = requests(times, kinds(tasks, config), rng)
    return ReferenceLoad(
        tuple(made), tuple(segments), frozenset(r.id for r, s in zip(made, where, strict=True) if s % 2)
    )
