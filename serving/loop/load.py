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
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Annotated, Any

from pydantic import Field

from pliant.errors import InputError
from pliant.state import Finite, Sum, read
from pliant.watch.binning import Binning
from pliant.watch.detector import Alarm, Detector, Stream, detector_from
from pliant.watch.system import ALPHA, StreamFigures, figures_of, part

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


@dataclass(frozen=True, slots=True)
class _Course:
    """What was counted on former days in each window, and the last window that counts."""

    days: Annotated[list[Annotated[list[Sum], Field(max_length=DAYS)]], Field(min_length=SLOTS, max_length=SLOTS)]
    closed: int


@dataclass(frozen=True, slots=True)
class _State:
    """What a watch of the load knows, as it is kept; of the window that is under way nothing is."""

    course: _Course
    detector: dict[str, Any]
    ratios: list[Finite]


class LoadWatch:
    """Says once when a service has more load than is usual. `look` belongs off the path of the requests."""

    def __init__(self) -> None:
        self.detector = Detector(STREAM)
        self._days: list[list[float]] = [[] for _ in range(SLOTS)]
        self._closed = -1  # the last window that counts
        self._window = -1  # that is under way, by its number since 1970
        self._minutes: dict[int, float] = {}  # its requests, of the minutes in which somebody looked
        self._ratios: deque[float] = deque(maxlen=SLOTS)

    def look(self, requests: float, seconds: float) -> Alarm | None:
        """Take the number of requests since the last look, at a time in seconds since 1970; return the alarm that is raised
        now."""
        ratio = self.ratio(requests, seconds)
        if ratio is None:
            return None
        self._ratios.append(ratio)
        alarm = self.detector.update(STREAM.binning.counts([ratio]))
        if alarm is not None:
            latest = list(self._ratios)[-max(1, alarm.observations - alarm.since) :]
            sentence = f"{NAME}: {2 ** median(latest):.1f} times what is usual at this time of day"
            self.detector.alarm = alarm = replace(alarm, sentence=sentence)
        return alarm

    def ratio(self, requests: float, seconds: float) -> float | None:
        """Count requests, as `look`. Return the logarithm to base 2 of the load over the usual one where a window has ended
        and enough days are known; else None. A window that comes again, as of a clock that was set back, counts once."""
        number, ratio = int(seconds // WINDOW), None
        if self._window != number:
            once = not -SLOTS < self._window - self._closed <= 0
            if once and len(self._minutes) >= MINUTES:
                self._closed, days = self._window, self._days[self._window % SLOTS]
                load = median(self._minutes.values())
                ratio = math.log2((load + 1) / (median(days) + 1)) if len(days) >= LEAST else None
                days.append(load)
                del days[:-DAYS]
            self._window, self._minutes = number, {}
        minute = int(seconds % WINDOW // MINUTE)
        self._minutes[minute] = self._minutes.get(minute, 0.0) + requests
        return ratio

    def release(self) -> None:
        """Learn all of it anew where an alarm stands, as after a new release; else go on."""
        if self.detector.alarm is not None:
            self.__init__()  # type: ignore[misc]

    def figures(self) -> Sequence[StreamFigures]:
        """Return the row of the table that `pliant watch` prints; none before a window was compared."""
        return (figures_of(self.detector),) if self.detector.observations else ()

    def to_dict(self) -> dict[str, Any]:
        """Return all that is known as plain JSON values."""
        return asdict(_State(_Course(self._days, self._closed), self.detector.to_dict(), list(self._ratios)))


def load_watch_from(content: Any) -> LoadWatch:
    """Return the watch whose `to_dict` gave this. Raises `InputError` for anything else."""
    state, watch = read(_State, content, "what a watch of the load gave"), LoadWatch()
    watch._days, watch._closed = state.course.days, state.course.closed
    watch.detector = detector_from(state.detector)
    if watch.detector.stream != STREAM:
        raise InputError("load", watch.detector.stream.name, "of the stream that is watched")
    watch._ratios.extend(state.ratios)
    return watch
