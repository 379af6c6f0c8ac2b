"""What a figure means beside the one that landed last: kept, lost, never kept, left out or stale. Pure values, no clock.

A promise is lost only where the figure that landed was met and two measurements of now, one after the other, are missed:
the second tells a change of the code from a machine that was busy with something else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from pliant.benchmarks.results import Target

STALE = 14
"""Days after which a figure that is measured elsewhere no longer counts as known."""

Verdict = Literal["met", "met at the second", "missed", "missed twice", "skipped", "stale", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Machine:
    """Where a figure was measured. `avx`: the widest instructions that torch uses, such as AVX512."""

    cores: int
    avx: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of the ledger. `measured` is NaN where `skipped` says why there is none; `day`: ISO, such as 2026-11-27.

    `seconds`: what the measurement took, with all others of the same part; 0 where it is not known.
    """

    name: str
    covers: str
    target: Target
    day: str
    commit: str
    seconds: float = 0.0
    machine: Machine | None = None
    skipped: str = ""

    @property
    def met(self) -> bool:
        return not self.skipped and self.target.met


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of now beside the one that landed last, which is None for an entry that is new."""

    now: Figure
    verdict: Verdict
    landed: Figure | None = None

    @property
    def lost(self) -> bool:
        return self.verdict == "missed twice"

    @property
    def sentence(self) -> str:
        """What is wrong and what to do, for a figure that is lost."""
        assert self.landed is not None
        name, now, landed = self.now.name, self.now.target, self.landed
        bound = landed.target if math.isnan(now.measured) else now  # what broke knows no limit
        promised = f"{bound.sense} {limit(bound)} is promised"
        return (
            f"{name}: {now.name} is {figure(now)} where {promised}, twice in a row, and was {figure(landed.target)} "
            f"on {landed.day} ({landed.commit}): mend what changed it, or give the promise up with ACCEPT={name!r}."
        )


def must_repeat(now: Figure, landed: Figure | None) -> bool:
    """Whether a figure is measured once more: it is missed, and the one that landed was met."""
    return not now.skipped and not now.met and landed is not None and landed.met


def judge(now: Figure, landed: Figure | None = None, again: Figure | None = None) -> Line:
    """Return the line of a figure that was measured or left out now; `again`: of the second measurement, if there was one.

    What is missed for the first time, being new or having been missed before, is shown and is no loss.
    """
    if now.skipped:
        return Line(now, "skipped", landed)
    if now.met:
        return Line(now, "met", landed)
    if again is None or not must_repeat(now, landed):
        return Line(now, "missed", landed)
    return Line(again, "met at the second" if again.met else "missed twice", landed)


def elsewhere(known: Figure, today: date) -> Line:
    """Return the line of a figure that needs hours: it stands as it was measured last, and is stale after two weeks."""
    age = (today - date.fromisoformat(known.day)).days if known.day else STALE + 1
    return Line(known, "stale" if age > STALE else "elsewhere", known)


def kept(lines: Sequence[Line], before: Mapping[str, Figure], accepted: Sequence[str] = ()) -> list[Figure]:
    """Return the figures of the next ledger: those that were there `before`, in their order, and what was measured now.

    Neither a lost figure, unless its name is `accepted`, nor a skipped one takes the place of the one that landed: a
    promise is given up by its name, never by measuring.
    """
    figures = dict(before)
    for line in lines:
        stays = (line.lost and line.now.name not in accepted) or line.verdict == "skipped"
        figures[line.now.name] = line.landed if stays and line.landed is not None else line.now
    return list(figures.values())


def figure(target: Target) -> str:
    """Return what was measured as text, with its unit."""
    return "-" if math.isnan(target.measured) else f"{target.measured:,.4g} {target.unit}".strip()


def limit(target: Target) -> str:
    """Return the limit as text, with its unit."""
    return f"{target.limit:,g} {target.unit}".strip()


def to_plain(each: Figure) -> dict[str, Any]:
    """Return a figure for JSON, its limit and its verdict included, so that the file can be read without this code."""
    target, machine = each.target, each.machine
    measured = None if math.isnan(target.measured) else float(f"{target.measured:.4g}")
    return {
        "name": each.name,
        "covers": each.covers,
        "target": target.name,
        "figure": measured,
        "sense": target.sense,
        "limit": target.limit,
        "unit": target.unit,
        "met": each.met,
        "date": each.day,
        "commit": each.commit,
        "seconds": round(each.seconds, 1),
        "machine": None if machine is None else {"cores": machine.cores, "avx": machine.avx},
        **({"skipped": each.skipped} if each.skipped else {}),
    }


def from_plain(plain: Mapping[str, Any]) -> Figure:
    """Return the figure that `to_plain` has written."""
    measured = math.nan if plain["figure"] is None else float(plain["figure"])
    target = Target(plain["target"], measured, plain["sense"], plain["limit"], plain["unit"])
    machine = None if plain["machine"] is None else Machine(**plain["machine"])
    where = (plain["date"], plain["commit"], plain["seconds"], machine, plain.get("skipped", ""))
    return Figure(plain["name"], plain["covers"], target, *where)
