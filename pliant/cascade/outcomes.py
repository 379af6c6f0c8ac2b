"""Compares answers with labels that come later: accuracy and calibration by level, and whether a promise is broken.

Pure: answers and labels come in, figures go out, with no clock, HTTP or disk. Everything is in memory and ends with the
process; only the `memory` newest answers can still be labelled, and only for `seconds`.

The promise of a candidate is an accuracy. It is tested again with every label, and an ordinary test would sooner or
later raise a false alarm. So the test is an e-process: a wealth that starts at 1 and is bet against the promise, at
odds that are fair if the promise just holds. If it is kept, the wealth ever exceeds 20 with a probability of at most
5%, over all time (Ville's inequality). The bets are the mixture over a grid of Waudby-Smith and Ramdas, Estimating
means of bounded random variables by betting, JRSS B, 2023. Part of the wealth is held in reserve and bet bit by bit, so
that losses in good times do not hide a promise that breaks later (fixed share: Herbster and Warmuth, Tracking the best
expert, 1998).

A broken promise raises an alarm, which keeps the labels that led to it, and who reported them. An alarm that is taken back
(the labels were false) lets the test of its candidate start anew.

The bound is for one (task, version, candidate). It assumes that labelled answers are no worse than the others: if
labels only come with complaints, any promise breaks.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pliant.cascade.answer_memory import AnswerMemory
from pliant.cascade.answered import Answered, Label

BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
CONFIDENCE = 0.95  # of the test: a promise is broken when the wealth reaches 1 / (1 - CONFIDENCE)
BETS = 12  # alternatives to the promise, each multiplying the promised odds of a wrong answer by a factor
LEAST, MOST = 1.1, 6.0  # the smallest and the largest factor
BET_AT_ONCE = 0.5  # share of the wealth that is bet from the first label on
PACE = 200.0  # labels; the reserve is nearly whole before so many
MAX_WEALTH = 1e100  # keeps the wealth finite
MAX_RECORDS = 256  # candidates with figures; the one whose last label is oldest goes first
MAX_REPORTS = 200  # labels of one candidate that an alarm shows, the latest ones
MAX_ALARMS = 64  # the oldest goes first

Status = Literal["counted", "repeated", "contradicted", "unknown"]
Wealth = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelResult:
    """What a label led to. Only a "counted" one changes figures; `broke`: whether it broke the promise."""

    status: Status
    answered: Answered | None = None
    correct: bool | None = None
    broke: bool = False


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


class Tracker:
    """Keeps the `memory` newest answers for `seconds`, takes their labels, counts, and raises alarms.

    Every `now` is in seconds on one clock.
    """

    def __init__(self, memory: int = 100_000, seconds: float = math.inf) -> None:
        self._answers, self._seconds = AnswerMemory(memory), seconds
        self._alarms: OrderedDict[int, Alarm] = OrderedDict()
        self._raised = 0
        self._records: OrderedDict[tuple[str, str | int, str], _Record] = OrderedDict()

    def remember(self, id: str, answered: Answered, now: float = 0.0) -> None:
        """Keep an answer, and forget the oldest ones if there are too many, or if they are too old."""
        self._answers.add(id, answered, now)
        self._forget(now)

    def answered(self, id: str, now: float = 0.0) -> Answered | None:
        """Return an answer that is still kept."""
        row = self._row(id, now)
        return None if row is None else self._answers.answered(row)

    def take(self, id: str, label: Label, report: Report = NOBODY) -> LabelResult:
        """Count the label of an answer. A second label for the same answer changes nothing.

        Raises `InputError` as `Answered.correct` does.
        """
        row = self._row(id, report.at)
        if row is None:
            return LabelResult("unknown")
        answered, former = self._answers.answered(row), self._answers.label(row)
        correct = answered.correct(label)
        if former is not None:
            status: Status = "repeated" if former == label else "contradicted"
            return LabelResult(status, answered, answered.correct(former))
        self._answers.set_label(row, label)
        record = self._record_of(answered)
        broke = record.add(answered, ReportedLabel(id, label, correct, report))
        if broke:
            self._raise_alarm(self.figures_of(answered), record, report.at)
        return LabelResult("counted", answered, correct, broke)

    def alarms(self) -> list[Alarm]:
        """Return the latest alarms, the oldest first."""
        return list(self._alarms.values())

    def take_back(self, id: int, report: Report) -> Alarm | None:
        """Take an alarm back: the figures of its candidate start anew. Return it; None for an unknown one."""
        alarm = self._alarms.get(id)
        if alarm is None or alarm.taken_back is not None:
            return alarm
        self._alarms[id] = replace(alarm, taken_back=report)
        self._records.pop((alarm.figures.task, alarm.figures.version, alarm.figures.candidate), None)
        return self._alarms[id]

    def figures(self) -> list[Figures]:
        """Return the figures of every candidate with labels; the one labelled last is at the end."""
        return [record.figures(*key) for key, record in self._records.items()]

    def figures_of(self, answered: Answered) -> Figures:
        """Return the figures of the candidate that gave an answer."""
        return self._record_of(answered).figures(answered.task, answered.version, answered.candidate)

    def check(self) -> None:
        """Raises AssertionError if more is kept than allowed, or an answer is lost."""
        self._answers.check()
        assert len(self._records) <= MAX_RECORDS, "too many records"
        assert len(self._alarms) <= MAX_ALARMS, "too many alarms"

    def _row(self, id: str, now: float) -> int | None:
        """Return where an answer is kept; None if it is not."""
        self._forget(now)
        return self._answers.find(id)

    def _forget(self, now: float) -> None:
        while (at := self._answers.oldest) is not None and now - at > self._seconds:
            self._answers.drop_oldest()

    def _raise_alarm(self, figures: Figures, record: _Record, now: float) -> None:
        self._raised += 1
        self._alarms[self._raised] = Alarm(self._raised, now, figures, tuple(record.reports))
        if len(self._alarms) > MAX_ALARMS:
            self._alarms.popitem(last=False)

    def _record_of(self, answered: Answered) -> _Record:
        key = (answered.task, answered.version, answered.candidate)
        record = self._records.setdefault(key, _Record())
        self._records.move_to_end(key)
        if len(self._records) > MAX_RECORDS:
            self._records.popitem(last=False)
        return record


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
    allowed = float(np.clip(1 - promised, 1e-6, 1 - 1e-6))
    odds = allowed / (1 - allowed) * np.geomspace(LEAST, MOST, BETS)
    rate = odds / (1 + odds)
    factor = np.where(np.expand_dims(wrong, -1), rate / allowed, (1 - rate) / (1 - allowed))
    fresh = (reserve(labels) - reserve(labels + 1)) / BETS
    return np.minimum(wealth * factor + fresh, MAX_WEALTH)


def evidence(wealth: Wealth, labels: int) -> NDArray[np.float64]:
    """Return the whole wealth [...] from the bets [..., BETS]; it starts at 1."""
    total: NDArray[np.float64] = np.sum(wealth, axis=-1) + reserve(labels)
    return total


@dataclass(slots=True)
class _Level:
    """Sums over the labelled answers of one level, by bin of their confidence."""

    labels: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    confidence: NDArray[np.float64] = field(default_factory=lambda: np.zeros(BINS))
    correct: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))

    def add(self, confidence: float, correct: bool) -> None:
        index = min(max(int(confidence * BINS), 0), BINS - 1)
        self.labels[index] += 1
        self.confidence[index] += confidence
        self.correct[index] += correct

    def figures(self, level: str) -> LevelFigures:
        labels = int(self.labels.sum())
        error = float(np.abs(self.confidence - self.correct).sum() / labels)
        return LevelFigures(
            level, labels, float(self.correct.sum() / labels), float(self.confidence.sum() / labels), error
        )


@dataclass(slots=True)
class _Record:
    """What is counted of one candidate."""

    levels: dict[str, _Level] = field(default_factory=dict)
    wealth: Wealth = field(default_factory=initial_wealth)
    promised: float | None = None
    labels: int = 0
    correct: int = 0
    broken: bool = False
    reports: deque[ReportedLabel] = field(default_factory=lambda: deque(maxlen=MAX_REPORTS))

    def add(self, answered: Answered, reported: ReportedLabel) -> bool:
        """Count an answer. Returns whether it broke the promise."""
        correct = reported.correct
        self.levels.setdefault(answered.level, _Level()).add(answered.confidence, correct)
        if answered.promised is None:
            return False
        self.promised = answered.promised
        self.reports.append(reported)
        self.wealth = bet(self.wealth, self.labels, not correct, answered.promised)
        self.labels += 1
        self.correct += correct
        before, self.broken = self.broken, self.broken or self.evidence >= 1 / (1 - CONFIDENCE)
        return self.broken and not before

    @property
    def evidence(self) -> float:
        return float(evidence(self.wealth, self.labels))

    def figures(self, task: str, version: str | int, candidate: str) -> Figures:
        accuracy = self.correct / self.labels if self.labels else math.nan
        levels = tuple(level.figures(name) for name, level in self.levels.items())
        return Figures(
            task, version, candidate, self.promised, self.labels, accuracy, self.evidence, self.broken, levels
        )
