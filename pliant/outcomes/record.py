"""What is counted of one candidate: the labelled answers of each level by confidence, and the bets against its promise.

A promise is about the mean. A slice (a class, a tenant, or what clients declared) has a floor below it, which is bet on
label by label, as most have few. Labels as near to each other as dependent ones are count once. A slice with nearly all
labels is left to the promise. The floors of all slices together have an error level of their own, divided as a trial's is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, NamedTuple, TypeVar

from pydantic import Field

from pliant.betting import BLOCK, Bets, Blocks, slice_weights
from pliant.fairness import Groups, WithoutEach
from pliant.outcomes.labels import DECLARED, Label
from pliant.state import Finite, Sum, Whole

CONFIDENCE = 0.95  # of the test
TARGET = 1 / (1 - CONFIDENCE)  # the evidence that breaks a promise
BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
FLOOR = 0.3  # by which a slice may be right less often than promised
MOST_OF_ALL = 0.75  # share of the labels above which a slice is left to the promise
MAX_SLICES, MAX_DECLARED = 48, 16  # of one candidate: those that it has by itself, and those that clients declare
MAX_REPORTS = 200  # labels of one candidate that an alarm shows, the latest ones

Version = str | int
Key = tuple[str, Version, str]
"""Task, version and candidate: what figures are of."""
Sums = Annotated[list[Finite], Field(min_length=BINS, max_length=BINS)]
B = TypeVar("B", bound=Bets)


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
class SliceFigures:
    """Figures of a slice that is right less often than its floor allows."""

    name: str
    labels: int  # that were bet on
    accuracy: float  # of these
    least: float  # its floor


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
    slices: tuple[SliceFigures, ...] = ()  # below their floors


@dataclass(slots=True)
class _Level:
    """Sums over the labelled answers of one level, each times its weight, by bin of their confidence [BINS]."""

    labels: Sums = field(default_factory=lambda: [0.0] * BINS)
    confidence: Sums = field(default_factory=lambda: [0.0] * BINS)
    correct: Sums = field(default_factory=lambda: [0.0] * BINS)
    beyond: Sum = 0.0  # what weights exceed 1 by, in all


@dataclass(slots=True)
class _Slice:
    """The bets against the floor of a slice, from all of its labels and from those that may teach."""

    target: Sum  # the evidence that breaks it
    least: Finite = 0.0
    labels: Whole = 0
    resumes: Whole = 0  # label of the candidate from which on one of the slice counts again
    correct: Whole = 0  # of those that were bet on
    broken: bool = False
    refuted: bool = False
    bets: Bets = field(default_factory=Bets)
    teaching: WithoutEach[Bets] = field(default_factory=lambda: WithoutEach(Bets()))

    def add(self, correct: bool, least: float, group: int | None) -> bool:
        """Bet on a label; return whether it broke the floor. `group`: of tenants; None: it teaches nothing."""
        self.least, self.correct = least, self.correct + correct
        self.bets.add(not correct, least)
        if group is not None:
            for bets in self.teaching.seeing(group):
                bets.add(not correct, least)
            self.refuted |= all(bets.evidence >= self.target for bets in self.teaching.every)
        before, self.broken = self.broken, self.broken or self.refuted or self.bets.evidence >= self.target
        return self.broken and not before


@dataclass(slots=True)
class Record:
    """Counts the labels of one candidate.

    A promise is `broken` by all labels together, which an alarm shows. It is `refuted`, which others act on, where the
    labels that may teach break it without those of any one group of tenants, too (pliant/fairness.py). So are floors.
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
    slices: dict[str, _Slice] = field(default_factory=dict)

    @property
    def refutations(self) -> int:
        """How many floors are refuted; as soon as the promise is, more than all."""
        return 1 + MAX_SLICES + MAX_DECLARED if self.refuted else sum(each.refuted for each in self.slices.values())

    def has_room(self, name: str) -> bool:
        """Return whether a slice is counted: those of its kind that come first are."""
        declared = name.startswith(DECLARED)
        others = sum(other.startswith(DECLARED) == declared for other in self.slices)
        return name in self.slices or others < (MAX_DECLARED if declared else MAX_SLICES)

    def add(
        self,
        level: str,
        confidence: float,
        promised: float | None,
        reported: ReportedLabel,
        tenant: str | None = "",
        weight: float = 1.0,
        slices: Sequence[str] = (),
        floor: float = FLOOR,
    ) -> bool:
        """Count the label of an answer. `tenant`: whose evidence it is, "" where that is not capped; None: it teaches
        nothing. `weight`: how many answers it stands for; `floor`: by how much `slices` may be below the promise. Returns
        whether it broke the promise, or the floor of a slice of a promise that is not broken."""
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
        group = None if tenant is None else self.groups.of(tenant)
        if group is not None:
            for bets in self.teaching.seeing(group):
                bets.add(wrong, promised)
            self.refuted |= all(bets.evidence >= TARGET for bets in self.teaching.every)
        before, self.broken = self.broken, self.broken or self.bets.evidence >= TARGET
        below = [self._below(name, reported.correct, max(0.0, promised - floor), group) for name in slices]
        return not before and (self.broken or any(below))

    def _below(self, name: str, correct: bool, least: float, group: int | None) -> bool:
        """Count the label of a slice; return whether it broke its floor."""
        if not self.has_room(name):
            return False
        if name not in self.slices:
            self.slices[name] = _Slice(TARGET / next(islice(slice_weights(), len(self.slices), None)))
        counted, labels = self.slices[name], self.bets.labels
        counted.labels += 1
        if counted.labels > MOST_OF_ALL * labels or labels < counted.resumes:
            return False
        counted.resumes = labels + self.bets.size // BLOCK
        return counted.add(correct, least, group)

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
        slices = tuple(
            SliceFigures(name, each.bets.labels, each.correct / each.bets.labels, each.least)
            for name, each in self.slices.items()
            if each.broken
        )
        promised, unasked, evidence = self.promised, self.unasked, self.bets.evidence
        return Figures(*key, promised, labels, unasked, accuracy, evidence, self.broken, tuple(levels), slices)

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
            teaching=_copied(self.teaching),
            slices={
                name: replace(each, bets=replace(each.bets), teaching=_copied(each.teaching))
                for name, each in self.slices.items()
            },
        )


def _copied(bets: WithoutEach[B]) -> WithoutEach[B]:
    return WithoutEach(replace(bets.whole), {group: replace(each) for group, each in bets.without.items()})
