"""River's detectors beside ours: each with its threshold set by quiet runs, and where each raises its first alarm.

ADWIN runs as river has it. Page-Hinkley and KSWIN run compiled (kernels.py), and their statistics are compared with a
threshold afterwards: on quiet runs the most that they reach sets the threshold that gives no more false alarms than
allowed. Page-Hinkley's threshold is the statistic's; KSWIN's is the p-value's, which falls as the distance grows.

KSWIN looks at every 50th value: looking seldom raises fewer false alarms, so its threshold may be lower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.watch.kernels import kswin, page_hinkley

Floats = NDArray[np.float64]
NEVER = -1
STRIDE = 50
_LOGS = (*np.arange(1.0, 20.0), *np.arange(20.0, 100.0, 4.0), *np.arange(100.0, 301.0, 20.0))  # of 1 / delta, base 10


def missing() -> str:
    """Return why there are no rivals here; empty if there are."""
    return "" if find_spec("river") else "needs river (pip install pliant[bench])"


class Rival(Protocol):
    """A detector at one setting of its other parameters."""

    @property
    def name(self) -> str: ...

    def most(self, run: Floats) -> float:
        """Return the most sensitive threshold with which a quiet run [signals, T] raises no alarm."""

    def first(self, run: Floats, threshold: float) -> int:
        """Return the first value of a run [signals, T] at which an alarm is raised on any signal; -1 if none is."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A rival whose alarm is a statistic above a threshold."""

    kind: str  # "PageHinkley" or "KSWIN"
    first_parameter: float  # its delta, or its window
    second_parameter: float  # its forgetting, or its recent values

    @property
    def name(self) -> str:
        return f"{self.kind}({self.first_parameter:g}, {self.second_parameter:g})"

    def statistic(self, values: Floats) -> Floats:
        """Return the statistic after each value [T]."""
        if self.kind == "PageHinkley":
            result: Floats = page_hinkley(values, self.first_parameter, self.second_parameter)
        else:
            result = kswin(values, int(self.first_parameter), int(self.second_parameter), STRIDE, 0)
        return result

    def most(self, run: Floats) -> float:
        return max(float(self.statistic(signal).max()) for signal in run)

    def first(self, run: Floats, threshold: float) -> int:
        above = [np.flatnonzero(self.statistic(signal) > threshold) for signal in run]
        return min((int(places[0]) for places in above if len(places)), default=NEVER)


@dataclass(frozen=True, slots=True)
class Adwin:
    """ADWIN that looks at every `clock`-th value; its threshold is the logarithm of 1 / delta, to base 10."""

    clock: int

    @property
    def name(self) -> str:
        return f"ADWIN(clock {self.clock})"

    def most(self, run: Floats) -> float:
        low, high = 0, len(_LOGS) - 1
        while low < high:
            middle = (low + high) // 2
            if all(self._first(signal, 10.0 ** -_LOGS[middle]) < 0 for signal in run):
                high = middle
            else:
                low = middle + 1
        return float(_LOGS[low])

    def first(self, run: Floats, threshold: float) -> int:
        places = [self._first(signal, 10.0**-threshold) for signal in run]
        return min((place for place in places if place >= 0), default=NEVER)

    def _first(self, values: Floats, delta: float) -> int:
        drift: Any = import_module("river.drift")  # of the extra `bench`
        update = drift.ADWIN(
            delta=delta, clock=self.clock
        )._helper.update  # what its update calls, which takes twice as long
        return next((place for place, value in enumerate(values.tolist()) if update(value)), NEVER)


def grid(scale: float, length: int, labels: bool) -> list[Rival]:
    """Return the rivals at every setting; `scale`: a standard deviation of the values, `length`: values of a run.

    KSWIN does not look at indicators of labels: their distance is a difference of shares, which the others see at once.
    """
    windows = [(window, recent) for window, recent in ((300, 100), (1000, 300)) if 10 * window <= length and not labels]
    return [
        Adwin(32),
        *(
            Statistic("PageHinkley", round(share * scale, 4), forgetting)
            for share in (0.02, 0.2)
            for forgetting in (0.995, 0.998, 0.999, 0.9999)
        ),
        *(Statistic("KSWIN", *pair) for pair in windows),
    ]


def threshold(most: Sequence[float], alarms: int) -> float:
    """Return the threshold with which so many of the quiet runs raise an alarm; `most` [runs]: of each."""
    return sorted(most)[len(most) - 1 - alarms]
