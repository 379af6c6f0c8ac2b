"""All streams of a system: one budget of false alarms, one state, one table.

The budget is split before anything is seen. Each of the first `EXPECTED` streams has an equal part of one half of it, and
the k-th further one has 1/(k (k + 1)) of the other half; these sum to the whole however many streams ever come. So the
probability that any stream of a system ever raises a false alarm is at most alpha, for each reference that is taken up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pliant.errors import InputError
from pliant.watch.detector import Alarm, Detector, State, Stream, detector_from, threshold

ALPHA = 0.01  # of a system, over all time: 20 months of 4 systems raise 0.8 false alarms on average, at most
EXPECTED = 16  # streams
SCHEMA = 1
INTERVAL = 0.95


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """A row of the table that `pliant watch` prints."""

    stream: str
    state: State
    observations: int  # since the stream was reset, those that it was learnt from included
    evidence: float  # 1 at the start
    threshold: float  # at which the alarm comes
    sentence: str  # of the alarm or of a mild shift; empty without


class SystemWatch:
    """The detectors of a system's streams, by name."""

    def __init__(self, alpha: float = ALPHA) -> None:
        if not 0 < alpha < 1:
            raise InputError("alpha", alpha, "between 0 and 1")
        self._alpha = alpha
        self.detectors: dict[str, Detector] = {}

    def add(self, stream: Stream) -> None:
        """Watch one more stream; its `alpha` is replaced by its part of the budget."""
        self.detectors[stream.name] = Detector(replace(stream, alpha=part(len(self.detectors), self._alpha)))

    def update(self, counts: Mapping[str, ArrayLike], seconds: float) -> list[Alarm]:
        """Take the counts of a block by stream, of those that are watched, at a time in seconds since 1970; return the
        alarms that are raised now. Raises `InputError` as `Detector.update` does."""
        raised = [self.detectors[name].update(block, seconds) for name, block in counts.items()]
        return [alarm for alarm in raised if alarm is not None]

    def figures(self) -> list[StreamFigures]:
        """Return a row for each stream, by name."""
        return [
            StreamFigures(name, each.state, each.observations, each.evidence, threshold(each.stream), each.sentence)
            for name, each in sorted(self.detectors.items())
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        detectors = [each.to_dict() for each in self.detectors.values()]
        return {"schema": SCHEMA, "alpha": self._alpha, "added": len(detectors), "detectors": detectors}


def system_watch_from(content: Any) -> SystemWatch:
    """Return the watch whose `to_dict` gave this. Raises `InputError` for anything else."""
    match content:
        case {"schema": 1, "alpha": int() | float() as alpha, "detectors": list(detectors)}:
            watch = SystemWatch(alpha)
            watch.detectors = {each.stream.name: each for each in map(detector_from, detectors)}
            return watch
    raise InputError("state", type(content).__name__, "what a watch's to_dict gave")


def part(number: int, alpha: float) -> float:
    """Return the part of alpha of the stream that was added as number 0, 1, ..."""
    if number < EXPECTED:
        return alpha / (2 * EXPECTED)
    further = number - EXPECTED + 1
    return alpha / (2 * further * (further + 1))


@dataclass(frozen=True, slots=True)
class AccuracyEstimate:
    """An accuracy that is estimated without labels, with its interval; NaN without answers."""

    accuracy: float
    low: float
    high: float
    answers: int


def mean_confidence(counts: ArrayLike) -> AccuracyEstimate:
    """Return the mean confidence from the counts by bin [bins] of equal width over [0, 1].

    That is the accuracy while confidences stay calibrated, under any change of the inputs that leaves them so. The interval
    says what the number of answers leaves open (Hoeffding, 95%), and nothing about calibration.
    """
    block = np.asarray(counts)
    answers = int(block.sum())
    if not answers:
        return AccuracyEstimate(math.nan, math.nan, math.nan, 0)
    accuracy = float(block @ ((np.arange(len(block)) + 0.5) / len(block)) / answers)
    margin = math.sqrt(math.log(2 / (1 - INTERVAL)) / (2 * answers))
    return AccuracyEstimate(accuracy, max(0.0, accuracy - margin), min(1.0, accuracy + margin), answers)
