"""What a gate measures of champion and challenger beside each other, now: their seconds in turns, their answers row by row.

Profiles are of the hours at which they were measured, and an older one at a quieter hour is no merit. Where the champion
can be run, its profile is corrected by what is measured now, and a difference counts only beyond chance.

A challenger whose answers are worse beyond the tolerance, but within chance, passes where its rows rule out a loss of more
than `FLOOR`: a champion is the luckiest of all that were tried on these rows, and would hold its place for ever against
its equals. Where they are too few to rule that out, it stays: nobody knows what would be lost.

Shape suffixes: R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pliant.errors import PliantError
from pliant.flows.gate import rejection
from pliant.profiling.interleaved import Ratio

FLOOR = 0.05
"""Share of a class's rows, or of all, that a challenger may be wrong on where the champion is right, on balance."""
LEVEL = 0.05  # probability that chance alone refuses, for all classes together
ROWS = 2000  # on which both sides answer, at most

Point = tuple[float, float]
"""Seconds that the profiles of champion and challenger say of what is measured."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Both sides' seconds, measured in turns; `why` is the reason where the champion cannot be run."""

    ratio: Ratio | None
    points: tuple[Point, ...] = ()
    why: str = ""

    def alike(self, tolerance: float) -> bool:
        """Whether no difference is shown."""
        return self.ratio is not None and self.ratio.low <= 1 + tolerance and self.ratio.high >= 1 / (1 + tolerance)

    def correction(self, tolerance: float) -> float:
        """Return what the seconds of the champion's profile are multiplied by, to be of the challenger's hour."""
        if self.ratio is None:
            return 1.0
        profiles = float(np.exp(np.mean([np.log(new / old) for old, new in self.points])))
        return profiles / (1.0 if self.alike(tolerance) else self.ratio.middle)

    def describe(self, tolerance: float) -> str:
        if self.ratio is None:
            return f"; the champion cannot be run here ({self.why}), so each profile is of its own hour"
        return f"; measured in turns now, it takes {self.ratio}{', no difference' if self.alike(tolerance) else ''}"


@dataclass(frozen=True, slots=True)
class Answers:
    """Whether each side is right on the same held-out rows, and the class of each row; no classes in a regression."""

    champion_R: NDArray[np.bool_]
    challenger_R: NDArray[np.bool_]
    class_R: NDArray[np.int64]
    classes: tuple[str, ...]

    def worse(self, tolerance: float, level: float = LEVEL) -> str:
        """Return why the challenger is refused for all rows together; empty where it is not."""
        lost, low, high = self.loss(level)
        interval = f"{100 * low:.1f} to {100 * high:.1f} points worse on {len(self.class_R)} rows"
        if low > tolerance:
            return interval
        return f"{interval}, too few to rule out {FLOOR:.0%}" if lost > tolerance and high > FLOOR + tolerance else ""

    def loss(self, level: float = LEVEL) -> tuple[float, float, float]:
        """Return by how much the challenger is less often right, and the lower and upper bound at this level each."""
        margin_M = np.linspace(-0.999, 0.999, 1999)
        score_M, beyond = tango(*self._differing(), margin_M), float(ndtri(1 - level))
        within_M = margin_M[np.abs(score_M) <= beyond]
        return float(self.champion_R.mean() - self.challenger_R.mean()), float(within_M[0]), float(within_M[-1])

    def fallen(self) -> str:
        """Return the classes of which the challenger is worse by more than the floor, beyond chance for all together."""
        beyond, reasons = float(ndtri(1 - LEVEL / max(len(self.classes), 1))), []
        for number, name in enumerate(self.classes):
            of = self.class_R == number
            part = replace(
                self, champion_R=self.champion_R[of], challenger_R=self.challenger_R[of], class_R=self.class_R[of]
            )
            if of.any() and tango(*part._differing(), FLOOR) > beyond:
                right = f"right in {part.challenger_R.sum()} of {of.sum()}, the champion in {part.champion_R.sum()}"
                reasons.append(f"class {name!r}: {right}")
        return "; ".join(reasons)

    def _differing(self) -> tuple[int, int, int]:
        lost, gained = self.champion_R & ~self.challenger_R, self.challenger_R & ~self.champion_R
        return int(lost.sum()), int(gained.sum()), len(lost)


@dataclass(frozen=True, slots=True)
class Beside:
    """`pace` None: both are one model. `answers`: by what is told apart, such as a task; none where rows cannot be had."""

    pace: Pace | None = None
    answers: Mapping[str, Answers] = field(default_factory=dict)

    def alike(self, tolerance: float) -> bool:
        """Whether no difference of their seconds is shown."""
        return self.pace is not None and self.pace.alike(tolerance)

    def correction(self, tolerance: float) -> float:
        return 1.0 if self.pace is None else self.pace.correction(tolerance)

    def describe(self, tolerance: float) -> str:
        return "" if self.pace is None else self.pace.describe(tolerance)

    def less_accurate(self, whose: str, new: float, old: float, tolerance: float) -> str:
        """Return why the accuracy of the challenger is refused, by its rows where both have answered them; else empty."""
        if not self.answers:
            return rejection(new >= old - tolerance, f"{whose} accuracy is {new:.4f}", f"{old:.4f}")
        (answers,) = self.answers.values()
        interval = answers.worse(tolerance)
        return rejection(not interval, f"{whose} accuracy is {new:.4f}", f"{old:.4f} ({interval})")

    def fallen(self) -> str:
        """Return the classes that lose more than the floor, each with its figures."""
        fallen = ((name, each.fallen()) for name, each in self.answers.items())
        return "; ".join(
            f"{name}: {classes}" if len(self.answers) > 1 else classes for name, classes in fallen if classes
        )


def tango(lost: int, gained: int, rows: int, margin: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the score statistic of a paired difference of shares beyond `margin` (Tango 1998)."""
    margin = np.asarray(margin, float)
    linear, room = (2 * rows - lost + gained) * margin - lost - gained, margin * (1 - margin)
    # The gained share that is likeliest where the lost one exceeds it by the margin.
    share = (np.sqrt(np.maximum(linear**2 + 8 * rows * gained * room, 0)) - linear) / (4 * rows)
    return np.asarray((lost - gained - rows * margin) / np.sqrt(rows * np.maximum(2 * share + room, 1e-12)))


NOTHING = Beside()


def where_it_runs(measure: Callable[[], Beside]) -> Beside:
    """Return what is measured, or why the champion cannot be run: lost from registry or disk, or refused by the device."""
    try:
        return measure()
    except (PliantError, OSError, RuntimeError) as error:
        return Beside(Pace(None, why=str(error)))
