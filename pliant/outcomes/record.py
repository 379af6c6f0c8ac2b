"""What is counted of one candidate: the labelled answers of each level by confidence, and the bets against its promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

from pydantic import Field

from pliant.betting import Blocks
from pliant.fairness import Groups, WithoutEach
from pliant.outcomes.labels import Label
from pliant.state import Finite, Sum, Whole

CONFIDENCE = 0.95  # of the test
TARGET = 1 / (1 - CONFIDENCE)  # the evidence that breaks a promise
BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
MAX_REPORTS = 200  # labels of one candidate that an alarm shows, the latest ones

Version = str | int
Key = tuple[str, Version, str]
"""Task, version and candidate: what figures are of."""
Sums = Annotated[list[Finite], Field(min_length=BINS, max_length=BINS)]


class ReportedLabel(NamedTuple):
    """A label that counted for a promise, who reported it, and when, in seconds since 1970."""

    id: str  # of the answer
    label: Label
    correct: bool
    tenant: str
    key: str
    at: Finite


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
    version: Version
    candidate: str
    promised: float | None  # the latest promised accuracy
    labels: int  # of answers that the promise covers
    unasked: int  # labels beside these, which count nowhere: see `Tracker.take`
    accuracy: float  # of the answers that the promise covers
    evidence: float  # the wealth of the bets against the promise, which breaks at 20
    broken: bool  # stays true once it is; a new version starts again
    levels: tuple[LevelFigures, ...]  # count also the answers that no promise covers


@dataclass(slots=True)
class _Level:
    """Sums over the labelled answers of one level, each times its weight, by bin of their confidence [BINS]."""

    labels: Sums = field(default_factory=lambda: [0.0] * BINS)
    confidence: Sums = field(default_factory=lambda: [0.0] * BINS)
    correct: Sums = field(default_factory=lambda: [0.0] * BINS)
    beyond: Sum = 0.0  # what weights exceed 1 by, in all


@dataclass(slots=True)
class Record:
    """Counts the labels of one candidate.

    A promise is `broken` by all labels together, which an alarm shows. It is `refuted`, which others act on, where the
    labels that may teach break it without those of any one group of tenants, too (pliant/fairness.py).
    """

    levels: dict[str, _Level] = field(default_factory=dict)
    promised: Finite | None = None
    correct: Sum = 0.0  # weights of the correct answers
    beyond: Sum = 0.0  # what the weights of the labels exceed 1 by, in all
    unasked: Whole = 0
    broken: bool = False
    refuted: bool = False
    reports: list[ReportedLabel] = field(default_factory=list, repr=False)
    bets: Blocks = field(default_factory=Blocks)
    groups: Groups = field(default_factory=Groups)
    teaching: WithoutEach[Blocks] = field(default_factory=lambda: WithoutEach(Blocks()))

    def add(
        self,
        level: str,
        confidence: float,
        promised: float | None,
        reported: ReportedLabel,
        tenant: str | None = "",
        weight: float = 1.0,
    ) -> bool:
        """Count the label of an answer. `tenant`: whose evidence it is, "" where that is not capped; None: it teaches
        nothing. `weight`: how many answers it stands for. Returns whether it broke the promise."""
        sums, index = self.levels.setdefault(level, _Level()), min(max(int(confidence * BINS), 0), BINS - 1)
        sums.labels[index] += weight
        sums.confidence[index] += weight * confidence
        sums.correct[index] += weight * reported.correct
        sums.beyond += weight - 1
        if promised is None:
            return False
        self.promised, wrong = promised, not reported.correct
        self.reports.append(reported)
        del self.reports[:-MAX_REPORTS]
        self.bets.add(wrong, promised)
        self.correct, self.beyond = self.correct + weight * reported.correct, self.beyond + weight - 1
        if tenant is not None:
            for bets in self.teaching.seeing(self.groups.of(tenant)):
                bets.add(wrong, promised)
            self.refuted |= all(bets.evidence >= TARGET for bets in self.teaching.every)
        before, self.broken = self.broken, self.broken or self.bets.evidence >= TARGET
        return self.broken and not before

    def figures(self, key: Key) -> Figures:
        """Return the figures; `key` says of what they are."""
        levels = []
        for name, sums in self.levels.items():
            total = sum(sums.labels)
            gaps = sum(abs(sure - right) for sure, right in zip(sums.confidence, sums.correct, strict=True))
            means = sum(sums.correct) / total, sum(sums.confidence) / total, gaps / total
            levels.append(LevelFigures(name, round(total - sums.beyond), *means))
        labels = self.bets.labels
        accuracy = self.correct / (labels + self.beyond) if labels else math.nan
        evidence = self.bets.evidence
        return Figures(*key, self.promised, labels, self.unasked, accuracy, evidence, self.broken, tuple(levels))

    def copy(self) -> Record:
        """Return a copy, in some microseconds, which another thread may write to disk."""
        return replace(
            self,
            levels={
                name: _Level(e.labels[:], e.confidence[:], e.correct[:], e.beyond) for name, e in self.levels.items()
            },
            reports=self.reports[:],
            bets=replace(self.bets),
            groups=Groups(self.groups.tenants.copy()),
            teaching=WithoutEach(
                replace(self.teaching.whole), {group: replace(bets) for group, bets in self.teaching.without.items()}
            ),
        )
