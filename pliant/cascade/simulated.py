"""Simulated devices of the cascade: profiles instead of devices, and saved outputs instead of texts; and a reference load.

Every level's answer to every text is known before (pliant/cascade/evaluate.py), so a launch looks up the results of its
requests. Durations are the profile's medians, optionally with log-normal noise from the generator that is passed in.

The promotion gate simulates the reference load and the replay over HTTP sends it, so that both measure the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pliant import workload
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.choice import BatchTimes
from pliant.cascade.evaluate import EvaluationData, Step, settle, walk
from pliant.cascade.knowledge import Knowledge
from pliant.cascade.scheduler import CascadeScheduler
from pliant.protocol import Failed, Finished, Launch, Request, Result
from pliant.report import Observation, observations
from pliant.simulator import simulate
from pliant.workload import ReferenceLoad, RequestKind, requests
from pliant.worlds import Course

RESTART = 1.0  # seconds
TINY = 1e-6  # the least seconds of a request
BY_BAG = -1  # setting of an answer that no launch gave

Walks = tuple[tuple[Step, ...], ...]
"""For each candidate of a task its steps, each over all texts."""


def walks(cascade: Cascade, outputs: Outputs) -> Walks:
    """Return the steps of every candidate over these texts. Raises `InputError` for a pruning that was not run."""
    data = EvaluationData(outputs, cascade.levels, cascade.tolerance)
    return tuple(tuple(walk(candidate, data)) for candidate in cascade.candidates)


def capacity(knowledge: Knowledge, walked: Mapping[str, Walks]) -> float:
    """Return the requests a second of one device with the first candidates, each text in a batch of the best size.

    `walked`: task -> what `walks` gives. All tasks get the same share of the requests. No device runs a bag, but it takes
    its time as well: one request after the other.
    """
    device, host = [0.0], [TINY]
    for task, candidates in walked.items():
        steps, path = candidates[0], knowledge.tasks[task][0]
        ran_R, before = settle(steps).steps_R, len(steps) - len(path.models)
        seconds = (
            _least(BatchTimes(knowledge.models[model].latency), steps[before + place].length_R[ran_R > before + place])
            for place, model in enumerate(path.models)
        )
        device.append(sum(seconds) / len(ran_R))
        host.append(float(steps[0].seconds_R.mean()) if before else 0.0)
    return len(walked) / max(sum(device), sum(host))


def _least(times: BatchTimes, length_R: np.typing.NDArray[np.integer]) -> float:
    """Return the seconds of the device for all these texts."""
    lengths, counts = np.unique(length_R, return_counts=True)
    return float(sum(times.least(int(length)) * int(count) for length, count in zip(lengths, counts, strict=True)))


class SimulatedCascade:
    """Executes launches for `pliant.simulate`."""

    def __init__(
        self,
        knowledge: Knowledge,
        walked: Mapping[str, Walks],
        requests: Sequence[Request],
        rows: Sequence[int],  # the text of each request, in its task
        rng: np.random.Generator,
        jitter: float = 0.0,  # standard deviation of a duration's logarithm
    ) -> None:
        self._knowledge, self._walked, self._rng, self._jitter = knowledge, walked, rng, jitter
        self._times = [BatchTimes(model.latency) for model in knowledge.models]
        self._texts = {request.id: (request, int(row)) for request, row in zip(requests, rows, strict=True)}

    def __call__(self, launch: Launch) -> tuple[float, Finished | Failed]:
        """Return the seconds of a launch and its end. A batch is padded to its longest text."""
        if launch.kind != "run":
            return RESTART, Finished(launch.id, RESTART)
        texts = [self._at(request, launch.setting) for request in launch.requests]
        longest = max(int(steps[0].length_R[row]) for steps, row in texts)
        seconds = float(self._times[launch.setting].batch_seconds(longest)[len(launch.requests) - 1])
        seconds *= float(np.exp(self._jitter * self._rng.standard_normal())) if self._jitter else 1.0
        results = tuple(self._result(request, launch.setting) for request in launch.requests)
        return seconds, Finished(launch.id, seconds, results)

    def _at(self, id: int, model: int) -> tuple[tuple[Step, ...], int]:
        """Return the steps of a request from this model on, and the row of its text."""
        request, row = self._texts[id]
        steps, models = (
            self._walked[request.task][request.setting],
            self._knowledge.tasks[request.task][request.setting].models,
        )
        return steps[len(steps) - len(models) + models.index(model) :], row

    def _result(self, id: int, model: int) -> Result:
        (step, *following), row = self._at(id, model)
        gain = float(step.gain_R[row])
        if np.isnan(gain) or not following:
            return Result(id, bool(step.correct_R[row]))
        return Result(id, bool(step.correct_R[row]), gain, int(following[0].length_R[row]))


def play(
    scheduler: CascadeScheduler,
    knowledge: Knowledge,
    walked: Mapping[str, Walks],
    requests: Sequence[Request],
    rows: Sequence[int],
    device: SimulatedCascade,
    course: Course | None = None,
) -> list[Observation]:
    """Return what became of each request, in order: a bag answers at once, and where its answer is all that there is.

    `rows`: the text of each request, in its task. An answer of a bag has the setting `BY_BAG`.
    """
    fates: dict[int, Observation] = {}
    onward, early = list[Request](), dict[int, tuple[Request, bool]]()
    for request, row in zip(requests, rows, strict=True):
        steps = walked[request.task][request.setting]
        if len(steps) == len(knowledge.tasks[request.task][request.setting].models):
            onward.append(request)
            continue
        gain, right = float(steps[0].gain_R[row]), bool(steps[0].correct_R[row])
        early[request.id] = request, right
        if np.isnan(gain):
            fates[request.id] = Observation(request, request.arrival, right, BY_BAG)
        else:
            onward.append(replace(request, utility=request.utility * gain, length=int(steps[1].length_R[row])))
    journal = simulate(scheduler, onward, device, course=course)
    for seen in observations(journal):
        id = seen.request.id
        if id not in early:
            fates[id] = seen
        elif seen.dropped:
            request, right = early[id]
            fates[id] = Observation(request, request.deadline, right, BY_BAG)
        else:
            fates[id] = replace(seen, request=early[id][0])
    return [fates[request.id] for request in requests]


@dataclass(frozen=True, slots=True)
class ReferenceConfig(workload.ReferenceConfig):
    urgent: tuple[float, float] = (0.3, 1.0)  # seconds to the deadline and utility, for half of each task's requests
    patient: tuple[float, float] = (1.0, 0.5)  # the same for the other half


def reference_load(
    lengths: Mapping[str, Sequence[int]], capacity: float, seed: int, config: ReferenceConfig | None = None
) -> ReferenceLoad:
    """Return Poisson arrivals at rates relative to `capacity` (requests/s), the stretches in random order.

    `lengths`: task -> the tokens of its texts, as the first level reads them.
    """
    config = config or ReferenceConfig()
    rng = np.random.default_rng(seed)
    segments, times = config.drawn(capacity, rng)
    kinds = [RequestKind(task, *kind) for task in lengths for kind in (config.urgent, config.patient)]
    drawn = requests(times, kinds, rng)
    rows = [int(rng.integers(len(lengths[request.task]))) for request in drawn]
    sized = [replace(request, length=int(lengths[request.task][row])) for request, row in zip(drawn, rows, strict=True)]
    return ReferenceLoad(tuple(sized), tuple(segments), tuple(rows))
