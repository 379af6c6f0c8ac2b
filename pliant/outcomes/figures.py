"""What is said of labelled answers: the result of a label, figures of levels and candidates, and alarms. Plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pliant.outcomes.answered import Answered, Label

Status = Literal["counted", "repeated", "contradicted", "unknown"]

Key = tuple[str, str | int, str]
"""Task, version and candidate: what figures are of."""


@dataclass(frozen=True, slots=True)
class LabelResult:
    """What a label led to. Only a "counted" one changes figures; `broke`: whether it broke the promise, and `refuted`
    whether that is now so without any one tenant's labels."""

    status: Status
    answered: Answered | None = None
    correct: bool | None = None
    broke: bool = False
    refuted: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """Who reported a label, and when, in seconds since 1970."""

    tenant: str = ""
    key: str = ""
    at: float = 0.0


NOBODY = Report()


@dataclass(frozen=True, slots=True)
class ReportedLabel:
    """A label that counted for a promise."""

    id: str  # of the answer
    label: Label
    correct: bool
    report: Report


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """Figures of the labelled answers of one level."""

    level: str
    labels: int
    accuracy: float
    confidence: float  # mean
    error: float  # expected calibration error, 15 bins


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one candidate. NaN where there are no labels."""

    task: str
    version: str | int
    candidate: str
    promised: float | None  # the latest promised accuracy
    labels: int  # of answers that the promise covers
    accuracy: float  # of these answers
    evidence: float  # the wealth of the bets against the promise, which breaks at 20
    broken: bool  # stays true once it is; a new version starts again
    levels: tuple[LevelFigures, ...]  # count also the answers that no promise covers


@dataclass(frozen=True, slots=True)
class Alarm:
    """A promise that broke: the figures at that time, and the latest labels that led to it."""

    id: int
    at: float  # seconds since 1970
    figures: Figures
    labels: tuple[ReportedLabel, ...]
    taken_back: Report | None = None
