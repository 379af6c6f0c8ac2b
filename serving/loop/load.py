"""The load of a service beside what is usual at that time of day: a stream of the watch that learns for days.

An observation is a window of 20 minutes: the median of what its minutes brought, so that a burst of some minutes is none.
It is compared with the median of the same window on up to 7 former days, so that neither the course of a day nor a day
that was unlike the others is a change. What is watched is how often a window has more than 1.5 times what is usual, and
how much more: days differ by less, and then all their windows alike, which no test of independent values takes for chance.
Beyond that windows are alike, too, as they follow each other, so their tolerance is wide (odds x 2). Less load is no alarm.

The course takes 3 days to be known, and what is usual beside it 5 more; until then there is no alarm. Releases change
neither, so both go on through them, but for an alarm: the release after it learns all of it anew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pliant.errors import InputError
from pliant.watch.binning import Binning
from pliant.watch.detector import Alarm, Detector, Stream, detector_from
from pliant.watch.system import ALPHA, StreamFigures, part

NAME = "load"
WINDOW, MINUTE = 1200, 60  # seconds; recorded bursts last 10 to 26 minutes
SLOTS = 86_400 // WINDOW  # windows of a day
MINUTES = 15  # of a window's 20 in which somebody has looked, at least; else nothing is known of it
DAYS, LEAST = 7, 3  # former days of a course that count at most, and at least
ALPHA_OF_LOAD = part(0, ALPHA)  # of a system's budget of false alarms
STREAM = Stream(
    NAME,
    Binning(tuple(math.log2(times) for times in (1.5, 1.75, 2, 2.5, 3, 4, 6))),  # times what is usual
    alpha=ALPHA_OF_LOAD,
    tolerance=2.0,
    burn_in=350,  # windows, about 5 days
    direction="up",
    pace=500.0,
)


@dataclass(slots=True)
class _Window:
    """The window that is under way: its number since 1970, and the requests of its minutes in which somebody looked."""

    number: int
    minutes: dict[int, float]


class Course:
    """What is usual at each time of day, from what was counted on former days."""

    def __init__(self) -> None:
        self._days: list[deque[float]] = [deque(maxlen=DAYS) for _ in range(SLOTS)]
        self._window: _Window | None = None
        self._closed = -1  # the last window that counts

    def count(self, requests: float, seconds: float) -> float | None:
        """Count requests that came since the last look, at a time in seconds since 1970. Return the logarithm to base 2 of
        the load over the usual one where a window has ended and enough days are known; else None."""
        number, ratio = int(seconds // WINDOW), None
        if self._window is None or self._window.number != number:
            ratio = self._close()
            self._window = _Window(number, {})
        minutes, minute = self._window.minutes, int(seconds % WINDOW // MINUTE)
        minutes[minute] = minutes.get(minute, 0.0) + requests
        return ratio

    def _close(self) -> float | None:
        """End the window, unless it is one of the last day's again: a clock that was set back counts nothing twice."""
        window = self._window
        if window is None or len(window.minutes) < MINUTES or -SLOTS < window.number - self._closed <= 0:
            return None
        self._closed, days = window.number, self._days[window.number % SLOTS]
        load = median(window.minutes.values())
        ratio = math.log2((load + 1) / (median(days) + 1)) if len(days) >= LEAST else None
        days.append(load)
        return ratio

    def to_dict(self) -> dict[str, Any]:
        """Return what is known as plain JSON values; of the window that is under way nothing is kept."""
        return {"days": [list(days) for days in self._days], "closed": self._closed}


def course_from(content: Any) -> Course:
    """Return the course whose `to_dict` gave this. Raises `InputError` for anything else."""
    match content:
        case {"days": list(days), "closed": int(closed)} if len(days) == SLOTS:
            course = Course()
            course._closed = closed
            for slot, loads in enumerate(days):
                if not isinstance(loads, list) or len(loads) > DAYS or not all(map(_is_load, loads)):
                    raise InputError("days", loads, f"at most {DAYS} loads")
                course._days[slot].extend(map(float, loads))
            return course
    raise InputError("course", type(content).__name__, "what a course's to_dict gave")


def _is_load(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


class LoadWatch:
    """Says once when a service has more load than is usual. `count` belongs off the path of the requests."""

    def __init__(self, stream: Stream = STREAM) -> None:
        self._stream = stream
        self.course = Course()
        self.detector = Detector(stream)
        self._ratios: deque[float] = deque(maxlen=SLOTS)

    def look(self, requests: float, seconds: float) -> Alarm | None:
        """Take the number of requests since the last look, at a time in seconds since 1970; return the alarm that is raised
        now."""
        ratio = self.course.count(requests, seconds)
        if ratio is None:
            return None
        self._ratios.append(ratio)
        binning = self._stream.binning
        alarm = self.detector.update(binning.counts([ratio]))
        if alarm is not None:
            self.detector.alarm = alarm = replace(alarm, sentence=self._sentence(alarm))
        return alarm

    def _sentence(self, alarm: Alarm) -> str:
        latest = list(self._ratios)[-max(1, alarm.observations - alarm.since) :]
        return f"{NAME}: {2 ** median(latest):.1f} times what is usual at this time of day"

    def release(self) -> None:
        """Learn all of it anew where an alarm stands, as after a new release; else go on."""
        if self.detector.alarm is not None:
            self.__init__(self._stream)  # type: ignore[misc]

    def figures(self) -> Sequence[StreamFigures]:
        """Return the row of the table that `pliant watch` prints; none before a window was compared."""
        each = self.detector
        if not each.observations:
            return ()
        sentence = each.alarm.sentence if each.alarm else ""
        return (StreamFigures(NAME, each.state, each.observations, each.evidence, each.threshold, sentence),)

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        return {"course": self.course.to_dict(), "detector": self.detector.to_dict(), "ratios": list(self._ratios)}


def load_watch_from(content: Any, stream: Stream = STREAM) -> LoadWatch:
    """Return the watch whose `to_dict` gave this. Raises `InputError` for anything else, or of another stream."""
    match content:
        case {"course": course, "detector": detector, "ratios": list(ratios)}:
            watch = LoadWatch(stream)
            watch.course, watch.detector = course_from(course), detector_from(detector)
            if watch.detector.stream != stream or not all(isinstance(ratio, float) for ratio in ratios):
                raise InputError("load", watch.detector.stream.name, "of the stream that is watched")
            watch._ratios.extend(ratios)
            return watch
    raise InputError("load", type(content).__name__, "what a watch of the load gave")
