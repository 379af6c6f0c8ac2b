"""All streams of a system: one budget of false alarms, one state, one table.

The budget is split before anything is seen. Each of the first `EXPECTED` streams has an equal part of one half of it, and
the k-th further one has 1/(k (k + 1)) of the other half; these sum to the whole however many streams ever come. So the
probability that any stream of a system ever raises a false alarm is at most alpha, for each reference that is taken up. A
stream that nothing was seen of for longest goes when there are too many; another one later has a part of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import ArrayLike

from pliant.errors import InputError
from pliant.watch.detector import Alarm, Detector, State, Stream, detector_from
from pliant.watch.reference import Reference

ALPHA = 0.01  # of a system, over all time: 20 months of 4 systems raise 0.8 false alarms on average, at most
EXPECTED = 16  # streams
MAX_STREAMS = 256
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """A row of the table that `pliant watch` prints."""

    stream: str
    state: State
    observations: int  # since the stream was reset, those that it was learnt from included
    evidence: float  # 1 at the start
    threshold: float  # at which the alarm comes
    sentence: str  # of the alarm; empty without one


class SystemWatch:
    """The detectors of a system's streams, by name; the one that was updated last is at the end."""

    def __init__(self, alpha: float = ALPHA) -> None:
        if not 0 < alpha < 1:
            raise InputError("alpha", alpha, "between 0 and 1")
        self._alpha = alpha
        self._added = 0
        self._detectors: OrderedDict[str, Detector] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._detectors

    def __len__(self) -> int:
        return len(self._detectors)

    def detector(self, name: str) -> Detector:
        """Return a stream's detector. Raises `InputError` if there is none."""
        if name not in self._detectors:
            raise InputError("stream", name, f"one of {', '.join(self._detectors) or 'none'}")
        return self._detectors[name]

    def add(self, stream: Stream) -> Detector:
        """Watch a stream; its `alpha` is replaced by its part of the budget. One that is watched alike already stays as
        it is; one that differs starts anew in the same part."""
        former = self._detectors.get(stream.name)
        if former is not None:
            stream = replace(stream, alpha=former.stream.alpha)
            if stream == former.stream:
                return former
        else:
            stream = replace(stream, alpha=part(self._added, self._alpha))
            self._added += 1
        self._detectors[stream.name] = Detector(stream)
        if len(self._detectors) > MAX_STREAMS:
            self._detectors.popitem(last=False)
        return self._detectors[stream.name]

    def update(self, counts: Mapping[str, ArrayLike]) -> list[Alarm]:
        """Take the counts of a block by stream; return the alarms that are raised now. Raises `InputError` for a stream
        that is not watched, and as `Detector.update` does."""
        alarms = []
        for name, block in counts.items():
            detector = self.detector(name)
            alarm = detector.update(block)
            self._detectors.move_to_end(name)
            if alarm is not None:
                alarms.append(alarm)
        return alarms

    def alarms(self) -> list[Alarm]:
        """Return the alarms that stand."""
        return [detector.alarm for detector in self._detectors.values() if detector.alarm]

    def reset(self, name: str | None = None, reference: Reference | None = None) -> None:
        """Start a stream anew (None: all of them), as after a new model; with a reference, or with its own. Raises
        `InputError` for a stream that is not watched."""
        for each in [self.detector(name)] if name is not None else self._detectors.values():
            each.reset(reference)

    def remove(self, name: str) -> None:
        """Watch a stream no longer. Raises `InputError` if it is not watched."""
        self.detector(name)
        del self._detectors[name]

    def figures(self) -> list[StreamFigures]:
        """Return a row for each stream, by name."""
        return [
            StreamFigures(
                name,
                each.state,
                each.observations,
                each.evidence,
                each.threshold,
                each.alarm.sentence if each.alarm else "",
            )
            for name, each in sorted(self._detectors.items())
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        detectors = [each.to_dict() for each in self._detectors.values()]
        return {"schema": SCHEMA, "alpha": self._alpha, "added": self._added, "detectors": detectors}


def system_watch_from(content: Any) -> SystemWatch:
    """Return the watch whose `to_dict` gave this. Raises `InputError` for anything else."""
    match content:
        case {"schema": 1, "alpha": int() | float() as alpha, "added": int(added), "detectors": list(detectors)}:
            if not len(detectors) <= min(MAX_STREAMS, added):
                raise InputError("detectors", len(detectors), f"at most {min(MAX_STREAMS, added)}")
            watch = SystemWatch(alpha)
            watch._added = added
            for each in map(detector_from, detectors):
                watch._detectors[each.stream.name] = each
            return watch
    raise InputError("state", type(content).__name__, "what a watch's to_dict gave")


def part(number: int, alpha: float) -> float:
    """Return the part of alpha of the stream that was added as number 0, 1, ..."""
    if number < EXPECTED:
        return alpha / (2 * EXPECTED)
    further = number - EXPECTED + 1
    return alpha / (2 * further * (further + 1))
