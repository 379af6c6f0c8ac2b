"""The reference load of the tokens system: calm stretches below the capacity and loud ones at up to twice of it.

The promotion gate simulates it and the replay over HTTP sends it, so both judge by the same load. Capacity is that of
the device at gamma 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pliant.protocol import Request
from pliant.workload import RequestKind, Segment, requests, segment_of, stretches


@dataclass(frozen=True, slots=True)
class ReferenceConfig:
    """Rates as shares of the capacity at gamma 0; a quiet and a loud (overloaded) stretch alternate."""

    quiet: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    loud: tuple[float, ...] = (1.25, 1.5, 1.75, 2.0)
    seconds: float = 4.0  # per stretch
    urgent: tuple[float, float] = (0.6, 1.0)  # seconds to the deadline, and utility, of half of each task's requests
    patient: tuple[float, float] = (1.0, 0.3)  # the same of the other half


@dataclass(frozen=True, slots=True)
class ReferenceLoad:
    """Requests from time 0 on, the stretches of their rate, and the ids of those that arrive in a loud stretch."""

    requests: tuple[Request, ...]
    segments: tuple[Segment, ...]
    loud: frozenset[int]


def kinds(tasks: Sequence[str], config: ReferenceConfig) -> list[RequestKind]:
    """Return one urgent and one patient kind of request a task; all are equally frequent."""
    return [RequestKind(task, *kind) for task in tasks for kind in (config.urgent, config.patient)]


def reference_load(
    tasks: Sequence[str], capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Return Poisson arrivals at rates relative to `capacity` (requests a second at gamma 0).

    Quiet and loud rates are each taken in an order drawn from `seed`.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    segments, times = stretches(config.quiet, config.loud, capacity, config.seconds, rng)
    segment_N = segment_of(times, segments)
    arrived = requests(times, kinds(tasks, config), rng)
    return ReferenceLoad(
        tuple(arrived),
        tuple(segments),
        frozenset(request.id for request, segment in zip(arrived, segment_N, strict=True) if segment % 2),
    )
