"""Devices that exist only as profiles, and texts that exist only as saved outputs: for simulations of the cascade.

Every level's answer to every text is known beforehand (pliant/cascade/evaluate.py walks it), so a launch only looks up what
becomes of its requests. Durations are the profile's medians, optionally scattered (log-normally) by the generator passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.batching import Clock
from pliant.cascade.evaluate import Ground, Step, settle, walk
from pliant.cascade.knowledge import Knowledge
from pliant.protocol import Failed, Finished, Launch, Request, Result

RESTART = 1.0  # seconds

Walks = tuple[tuple[Step, ...], ...]
"""Per candidate of a task its steps, each over all texts."""


def walks(cascade: Cascade, outputs: Outputs) -> Walks:
    """What every candidate makes of these texts. Raises `InputError` where a pruning was not run on them."""
    ground = Ground(outputs, cascade.levels, cascade.tolerance)
    return tuple(tuple(walk(candidate, ground)) for candidate in cascade.candidates)


def capacity(knowledge: Knowledge, walked: Mapping[str, Walks]) -> float:
    """Requests a second of one device that runs the first candidates, tasks alike, each text in its best batch."""
    means = []
    for task, candidates in walked.items():
        steps, path = candidates[0], knowledge.tasks[task][0]
        ran_R = settle(steps).steps_R
        parts = (
            _least(Clock(knowledge.models[model].latency), step.length_R[ran_R > place])
            for place, (model, step) in enumerate(zip(path.models, steps, strict=True))
        )
        means.append(sum(parts) / len(ran_R))
    return len(means) / sum(means)


def _least(clock: Clock, length_R: np.typing.NDArray[np.integer]) -> float:
    """Seconds of device time for all these texts."""
    lengths, counts = np.unique(length_R, return_counts=True)
    return float(sum(clock.least(int(length)) * int(count) for length, count in zip(lengths, counts, strict=True)))


class SimulatedCascade:
    """Call it as `simulate`'s `execute`."""

    def __init__(
        self,
        knowledge: Knowledge,
        walked: Mapping[str, Walks],
        requests: Sequence[Request],
        rows: Sequence[int],  # which text each of `requests` is
        rng: np.random.Generator,
        jitter: float = 0.0,  # standard deviation of a duration's logarithm
    ) -> None:
        self._knowledge, self._walked, self._rng, self._jitter = knowledge, walked, rng, jitter
        self._clocks = [Clock(model.latency) for model in knowledge.models]
        self._texts = {request.id: (request, int(row)) for request, row in zip(requests, rows, strict=True)}

    def __call__(self, launch: Launch) -> tuple[float, Finished | Failed]:
        """Seconds on the device, and its end; a batch takes as long as its longest text. A restart takes `RESTART`."""
        if launch.kind != "run":
            return RESTART, Finished(launch.id, RESTART)
        longest = max(self._length(request, launch.setting) for request in launch.requests)
        seconds = float(self._clocks[launch.setting].batch_seconds(longest)[len(launch.requests) - 1])
        seconds *= float(np.exp(self._jitter * self._rng.standard_normal())) if self._jitter else 1.0
        results = tuple(self._result(request, launch.setting) for request in launch.requests)
        return seconds, Finished(launch.id, seconds, results)

    def _at(self, id: int, model: int) -> tuple[tuple[Step, ...], int]:
        """The steps of a request's way from this model on, and its text."""
        request, row = self._texts[id]
        place = self._knowledge.tasks[request.task][request.setting].models.index(model)
        return self._walked[request.task][request.setting][place:], row

    def _length(self, id: int, model: int) -> int:
        steps, row = self._at(id, model)
        return int(steps[0].length_R[row])

    def _result(self, id: int, model: int) -> Result:
        (step, *following), row = self._at(id, model)
        gain = float(step.gain_R[row])
        if np.isnan(gain) or not following:
            return Result(id, bool(step.correct_R[row]))
        return Result(id, bool(step.correct_R[row]), gain, int(following[0].length_R[row]))
