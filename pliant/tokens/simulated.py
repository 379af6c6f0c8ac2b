"""What the tokens system is simulated with: its reference load, and a device whose durations and accuracies come from a
profile.

A launch takes the profile's median seconds, optionally scattered log-normally. An answer is right with the probability
of the task's accuracy at that gamma. All draws use the generator that is passed in.

The reference load has calm stretches below the capacity, which is that of the device at gamma 0, and loud ones at up to
twice of it. The promotion gate simulates it and the replay over HTTP sends it, so both judge by the same load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pliant.latency import LatencyTable
from pliant.protocol import Failed, Finished, Launch, Request, Result
from pliant.workload import RequestKind, Segment, requests, segment_of, stretches


class SimulatedDevice:
    """A function from a launch to its duration and end; pass it to `simulate` as `execute`."""

    def __init__(
        self,
        latency: LatencyTable,
        accuracy: Mapping[str, Mapping[int, float]],
        requests: Iterable[Request],
        rng: np.random.Generator,
        jitter: float = 0.0,  # standard deviation of a duration's logarithm
        loading: Mapping[int, float] | None = None,  # seconds to load a variant
    ) -> None:
        self._latency, self._accuracy, self._rng, self._jitter = latency, accuracy, rng, jitter
        self._loading = loading or {}
        self._task = {request.id: request.task for request in requests}

    def __call__(self, launch: Launch) -> tuple[float, Finished | Failed]:
        """Return the seconds that the launch takes, and the event that ends it.

        A restart takes one second, and so does loading a variant whose seconds are unknown.
        """
        if launch.kind != "run":
            seconds = self._loading.get(launch.setting, 1.0) if launch.kind == "load" else 1.0
            return seconds, Finished(launch.id, seconds)
        seconds = self._latency.at(launch.setting, len(launch.requests))
        seconds *= float(np.exp(self._jitter * self._rng.standard_normal())) if self._jitter else 1.0
        draws = self._rng.random(len(launch.requests))
        results = tuple(
            Result(request, bool(draw < self._accuracy[self._task[request]][launch.setting]))
            for request, draw in zip(launch.requests, draws, strict=True)
        )
        return seconds, Finished(launch.id, seconds, results)


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
