"""What is counted of one candidate: the labelled answers of each level by confidence, and the bets against its promise.

A bet against a promised accuracy is at odds that are fair if the promise just holds. The bets are the mixture over a grid of
Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B, 2023. If the promise is kept, the
wealth ever exceeds 20 with a probability of at most 5%, over all time (Ville's inequality), so it may be looked at after
every label. Part of the wealth is held in reserve and bet bit by bit, so that losses in good times do not hide a promise
that breaks later (fixed share: Herbster and Warmuth, Tracking the best expert, 1998).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pliant.fairness import Groups, WithoutEach
from pliant.outcomes.labels import Label
from pliant.state import Finite, Sum, Whole

CONFIDENCE = 0.95  # of the test
TARGET = 1 / (1 - CONFIDENCE)  # the evidence that breaks a promise
BETS = 12  # alternatives to the promise, each multiplying the promised odds of a wrong answer by a factor
LEAST, MOST = 1.1, 6.0  # the smallest and the largest factor
FACTORS = np.geomspace(LEAST, MOST, BETS)
BET_AT_ONCE = 0.5  # share of the wealth that is bet from the first label on
PACE = 200.0  # labels; the reserve is nearly whole before so many
MAX_WEALTH = 1e100  # keeps the wealth finite
BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
MAX_REPORTS = 200  # labels of one candidate that an alarm shows, the latest ones

Version = str | int
Key = tuple[str, Version, str]
"""Task, version and candidate: what figures are of."""
Wealth = NDArray[np.float64]


def initial_wealth() -> Wealth:
    """Return the wealth in each bet [BETS] before the first label; the rest of the 1 is in `reserve`."""
    return np.full(BETS, BET_AT_ONCE / BETS)


def reserve(labels: int) -> float:
    """Return the wealth that is not yet bet after `labels` labels. It never reaches 0."""
    return (1 - BET_AT_ONCE) / (1 + math.log1p(labels / PACE))


def bet(wealth: Wealth, labels: int, wrong: bool | NDArray[np.bool_], promised: float) -> Wealth:
    """Return the wealth in each bet [..., BETS] after one more answer was `wrong` [...] or not; `labels` came before
    it.

    Every bet is multiplied by a ratio of likelihoods, whose mean is 1 if wrong answers are as frequent as promised, and
    less if they are rarer. `promised` may differ from label to label, but must be known before the label.
    """
    allowed = min(max(1 - promised, 1e-6), 1 - 1e-6)
    odds = allowed / (1 - allowed) * FACTORS
    rate = odds / (1 + odds)
    factor = np.where(np.expand_dims(wrong, -1), rate / allowed, (1 - rate) / (1 - allowed))
    fresh = (reserve(labels) - reserve(labels + 1)) / BETS
    return np.minimum(wealth * factor + fresh, MAX_WEALTH)


def evidence(wealth: Wealth, labels: int) -> NDArray[np.float64]:
    """Return the whole wealth [...] from the bets [..., BETS]; it starts at 1."""
    total: NDArray[np.float64] = np.sum(wealth, axis=-1) + reserve(labels)
    return total


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
    accuracy: float  # of these answers
    evidence: float  # the wealth of the bets against the promise, which breaks at 20
    broken: bool  # stays true once it is; a new version starts again
    levels: tuple[LevelFigures, ...]  # count also the answers that no promise covers


@dataclass(slots=True)
class _Level:
    """Sums over the labelled answers of one level, by bin of their confidence [BINS]."""

    labels: Annotated[list[Whole], Field(min_length=BINS, max_length=BINS)] = field(default_factory=lambda: [0] * BINS)
    confidence: Annotated[list[Finite], Field(min_length=BINS, max_length=BINS)] = field(
        default_factory=lambda: [0.0] * BINS
    )
    correct: Annotated[list[Whole], Field(min_length=BINS, max_length=BINS)] = field(default_factory=lambda: [0] * BINS)


@dataclass(slots=True)
class Bets:
    """The bets against a promise from some of the labels, or against whoever reports them (echoes.py)."""

    labels: Whole = 0
    wealth: Annotated[list[Sum], Field(min_length=BETS, max_length=BETS)] = field(
        default_factory=lambda: initial_wealth().tolist()
    )

    def add(self, wrong: bool, promised: float) -> None:
        self.wealth = bet(np.asarray(self.wealth), self.labels, wrong, promised).tolist()
        self.labels += 1

    @property
    def evidence(self) -> float:
        return float(evidence(np.asarray(self.wealth), self.labels))


@dataclass(slots=True)
class Record:
    """Counts the labels of one candidate.

    A promise is `broken` by all labels together, which an alarm shows. It is `refuted`, which others act on, where the
    labels that may teach break it without those of any one group of tenants, too (pliant/fairness.py).
    """

    levels: dict[str, _Level] = field(default_factory=dict)
    promised: Finite | None = None
    correct: Whole = 0
    broken: bool = False
    refuted: bool = False
    reports: list[ReportedLabel] = field(default_factory=list, repr=False)
    bets: Bets = field(default_factory=Bets)
    groups: Groups = field(default_factory=Groups)
    teaching: WithoutEach[Bets] = field(default_factory=lambda: WithoutEach(Bets()))

    def add(
        self,
        level: str,
        confidence: float,
        promised: float | None,
        reported: ReportedLabel,
        tenant: str | None = "",
    ) -> bool:
        """Count the label of an answer. `tenant`: whose evidence it is, "" where that is not capped; None: it teaches
        nothing. Returns whether it broke the promise."""
        sums, index = self.levels.setdefault(level, _Level()), min(max(int(confidence * BINS), 0), BINS - 1)
        sums.labels[index] += 1
        sums.confidence[index] += confidence
        sums.correct[index] += reported.correct
        if promised is None:
            return False
        self.promised, wrong = promised, not reported.correct
        self.reports.append(reported)
        del self.reports[:-MAX_REPORTS]
        self.bets.add(wrong, promised)
        self.correct += reported.correct
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
            labels = sum(sums.labels)
            gaps = sum(abs(sure - right) for sure, right in zip(sums.confidence, sums.correct, strict=True))
            means = sum(sums.correct) / labels, sum(sums.confidence) / labels, gaps / labels
            levels.append(LevelFigures(name, labels, *means))
        labels = self.bets.labels
        accuracy = self.correct / labels if labels else math.nan
        return Figures(*key, self.promised, labels, accuracy, self.bets.evidence, self.broken, tuple(levels))

    def copy(self) -> Record:
        """Return a copy, in some microseconds, which another thread may write to disk."""
        return replace(
            self,
            levels={name: _Level(e.labels[:], e.confidence[:], e.correct[:]) for name, e in self.levels.items()},
            reports=self.reports[:],
            bets=replace(self.bets),
            groups=Groups(self.groups.tenants.copy()),
            teaching=WithoutEach(
                replace(self.teaching.whole), {group: replace(bets) for group, bets in self.teaching.without.items()}
            ),
        )
