"""What a gate measures of champion and challenger beside each other, now: their seconds in turns, their answers row by row.

Profiles are of the hours at which they were measured, and an older one at a quieter hour is no merit. Where the champion
can be run, its profile is corrected by what is measured now, and a difference counts only beyond chance.

A challenger whose answers are worse beyond the tolerance, but within chance, passes where its rows rule out a loss of more
than `FLOOR`: a champion is the luckiest of all that were tried on these rows, and would hold its place for ever against
its equals. Where they are too few to rule that out, it stays: nobody knows what would be lost.

Shape suffixes: R rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pliant.errors import DeviceError, PliantError
from pliant.flows.gate import rejection
from pliant.outcomes.labels import slices_of
from pliant.profiling.interleaved import Ratio

FLOOR = 0.05  # share of its rows that a slice, or all, may lose on balance
LEVEL = 0.05  # probability that chance alone refuses, for all slices together
ROWS = 2000  # on which both sides answer, at most
MARGINS = np.linspace(-0.999, 0.999, 1999)


@dataclass(frozen=True, slots=True)
class Answers:
    """Whether each side is right on the same held-out rows, and which of these are of each slice, such as a class."""

    champion_R: NDArray[np.bool_]
    challenger_R: NDArray[np.bool_]
    slices: Mapping[str, NDArray[np.bool_]]  # name -> R

    def worse(self, tolerance: float) -> str:
        """Return why the challenger is refused for all rows together; empty where it is not."""
        score_M = tango(self.champion_R, self.challenger_R, MARGINS)
        low, *_, high = MARGINS[np.abs(score_M) <= ndtri(1 - LEVEL)]
        lost = float(self.champion_R.mean() - self.challenger_R.mean())
        interval = f"{100 * low:.1f} to {100 * high:.1f} points worse on {len(self.champion_R)} rows"
        if low > tolerance:
            return interval
        return f"{interval}, too few to rule out {FLOOR:.0%}" if lost > tolerance and high > FLOOR + tolerance else ""

    def fallen(self, tolerance: float) -> str:
        """Return the slices of which the challenger is worse by more than the floor, beyond chance for all together.

        A tolerance above the floor takes its place.
        """
        margin = min(max(FLOOR, tolerance), 1.0)
        beyond, reasons = ndtri(1 - LEVEL / max(len(self.slices), 1)), []
        for name, of_R in self.slices.items():
            old_R, new_R = self.champion_R[of_R], self.challenger_R[of_R]
            if len(old_R) and tango(old_R, new_R, margin) > beyond:
                reasons.append(f"{name}: right in {new_R.sum()} of {len(new_R)}, the champion in {old_R.sum()}")
        return "; ".join(reasons)


def slices(
    label_R: NDArray[np.int64], classes: Sequence[str], named_R: Sequence[Sequence[str]]
) -> dict[str, NDArray[np.bool_]]:
    """Return the rows of each slice: those of each class, and those that a client's label says to be of it.

    `label_R`: numbers of classes; `named_R`: the slices that a row's label names (`slices_of`), none where it has no such.
    """
    parts = {slices_of(name)[0]: label_R == number for number, name in enumerate(classes)}
    for row, names in enumerate(named_R):
        for name in names:
            parts.setdefault(name, np.zeros(len(label_R), bool))[row] = True
    return parts


def tango(
    champion_R: NDArray[np.bool_], challenger_R: NDArray[np.bool_], margin: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    """Return the score statistic of a loss of right answers beyond `margin` on the same rows (Tango 1998)."""
    lost, gained, rows = (champion_R & ~challenger_R).sum(), (challenger_R & ~champion_R).sum(), len(champion_R)
    linear, room = (2 * rows - lost + gained) * margin - lost - gained, margin * (1 - margin)
    # The gained share that is likeliest where the lost one exceeds it by the margin.
    share = (np.sqrt(np.maximum(linear**2 + 8 * rows * gained * room, 0)) - linear) / (4 * rows)
    return np.asarray((lost - gained - rows * margin) / np.sqrt(rows * np.maximum(2 * share + room, 1e-12)))


@dataclass(frozen=True, slots=True)
class Beside:
    """What was measured. Without a ratio both are one model, or `why` says why the champion cannot be run.

    `points`: what the profiles of champion and challenger say of each point that was measured, in seconds. `answers`: by
    task; none where both have no such rows.
    """

    ratio: Ratio | None = None
    points: tuple[tuple[float, float], ...] = ()
    answers: Mapping[str, Answers] = field(default_factory=dict)
    why: str = ""

    def alike(self, tolerance: float) -> bool:
        """Whether seconds were measured that show no difference."""
        return self.ratio is not None and self.ratio.low <= 1 + tolerance and self.ratio.high >= 1 / (1 + tolerance)

    def correction(self, tolerance: float) -> float:
        """Return what the seconds of the champion's profile are multiplied by, to be of the challenger's hour."""
        if self.ratio is None:
            return 1.0
        profiles = float(np.exp(np.mean([np.log(new / old) for old, new in self.points])))
        return profiles / (1.0 if self.alike(tolerance) else self.ratio.middle)

    def describe(self, tolerance: float) -> str:
        """Return the interval, for the end of a verdict's reason."""
        if self.ratio is None:
            gone = f"; the champion cannot be run here ({self.why}), so each profile is of its own hour"
            return gone if self.why else ""
        interval = f"{self.ratio.low:.2f} to {self.ratio.high:.2f} times the champion's seconds"
        return f"; measured in turns now, it takes {interval}{', no difference' if self.alike(tolerance) else ''}"

    def less_accurate(self, whose: str, new: float, old: float, tolerance: float) -> str:
        """Return why the challenger's accuracy is refused, by rows where there are some of a single task; else empty."""
        worse = next((each.worse(tolerance) for each in self.answers.values()), None)
        good, interval = new >= old - tolerance if worse is None else not worse, f" ({worse})" if worse else ""
        return rejection(good, f"{whose} accuracy is {new:.4f}", f"{old:.4f}{interval}")

    def fallen(self, tolerance: float) -> str:
        """Return the slices that lose more than the floor, each with its figures."""
        return "; ".join(
            f"{name}: {fallen}" for name, each in self.answers.items() if (fallen := each.fallen(tolerance))
        )


NOTHING = Beside()


def same_device(old: str, new: str) -> None:
    """Raise `DeviceError` for a champion that was profiled on another class of device than the challenger."""
    if old != new:
        raise DeviceError(f"its profile is of {old}, this device is {new}")


def where_it_runs(measure: Callable[[], Beside]) -> Beside:
    """Return what is measured, or why the champion cannot be run: lost from registry or disk, or refused by the device."""
    try:
        return measure()
    except (PliantError, OSError, RuntimeError) as error:
        return Beside(why=str(error))
