"""Simulated devices of the bins system: a launch takes the profile's seconds for its shape.

Durations may be scattered log-normally by the generator that is passed in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pliant.bins.knowledge import Knowledge
from pliant.protocol import Failed, Finished, Launch, Request, Result

RESTART = 1.0  # seconds


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
