"""A simulated device of the tokens system: durations and accuracies come from its profile.

A launch takes the profile's median seconds, optionally scattered log-normally. An answer is right with the probability
of the task's accuracy at that gamma. All draws use the generator that is passed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from pliant.latency import LatencyTable
from pliant.protocol import Failed, Finished, Launch, Request, Result


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
