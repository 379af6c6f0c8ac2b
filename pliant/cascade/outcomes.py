"""What later labels say of the answers given: accuracy and calibration per level, and whether a promise is broken.

Pure: an answer and a label come in, figures go out; no clock, no HTTP, no disk. All is in memory: answers that wait for
labels and the figures end with the process, and the `memory` newest answers alone can still be labelled.

The promise of a candidate is an accuracy. It is tested anew with every label, so an ordinary test, repeated, would
sooner or later raise a false alarm. Here an imaginary gambler bets against the promise instead, at odds that are fair if
it just holds: were it kept, the fortune would exceed 20 times the stake with a probability of at most 5%, over all of
time together (Ville's inequality; Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting,
JRSS B, 2023, whose mixture over a grid of bets this is). Much of the stake is kept in reserve and bet bit by bit, so that
a promise that was kept for long and then broken is noticed as well: what was lost in the good time is not missed (fixed
share, Herbster and Warmuth, Tracking the best expert, 1998). The bound is of one (task, version, candidate), and holds
where the labelled answers are no worse a choice than all: labels that only come with complaints break any promise.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pliant.errors import InputError

BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
CONFIDENCE = 0.95  # of the test; it is over when the fortune is 1 / (1 - CONFIDENCE) times the stake
BETS = 12  # alternatives to the promise: the odds of a wrong answer are more than promised by a factor
LEAST, MOST = 1.1, 6.0  # of these factors
AT_ONCE = 0.5  # share of the stake that is bet from the first label on
PACE = 200.0  # labels over which the reserve begins to go
RICH = 1e100  # enough; keeps the fortune finite
BOOKS = 256  # (task, version, candidate) with figures; those without labels for longest go first

Label = str | float
Status = Literal["counted", "repeated", "contradicted", "unknown"]
Wealth = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer as it was given."""

    task: str
    version: str | int  # of the cascade that was served
    candidate: str
    level: str  # that answered
    label: Label  # a regression: the value
    confidence: float
    promised: float | None  # accuracy; None for an answer that no promise covers, as it was cut short
    tolerance: float = 0.0  # regression: a value this near is correct
    classes: tuple[str, ...] = ()  # empty: a regression

    def correct(self, label: Label) -> bool:
        """Raises `InputError` for a label that is no class of the task, or no finite number in a regression."""
        if self.classes:
            if label not in self.classes:
                raise InputError("label", _shown(label), f"one of {_listed(self.classes)}")
            return label == self.label
        if isinstance(label, str | bool) or not math.isfinite(label):
            raise InputError("label", _shown(label), "a finite number, as the task is a regression")
        return abs(label - float(self.label)) <= self.tolerance


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a label. Only "counted" changed anything; `broke` is whether this very label broke the promise."""

    status: Status
    answered: Answered | None = None
    correct: bool | None = None
    broke: bool = False


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """Of the labelled answers of one level."""

    level: str
    labels: int
    accuracy: float
    confidence: float  # mean
    error: float  # expected calibration error, 15 bins


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one candidate: what was promised last, and what it came to. NaN where there are no labels."""

    task: str
    version: str | int
    candidate: str
    promised: float | None
    labels: int  # of answers under the promise
    accuracy: float  # of these
    evidence: float  # the fortune of the bet against the promise; 20 and it is broken
    broken: bool  # once broken, for good: a new version starts afresh
    levels: tuple[LevelFigures, ...]  # these count the answers that were cut short, too


class Tracker:
    """Remembers the `memory` newest answers, takes their labels, and owns the figures."""

    def __init__(self, memory: int = 100_000) -> None:
        self._memory = memory
        self._answers: OrderedDict[str, Answered] = OrderedDict()
        self._labels: dict[str, Label] = {}
        self._books: OrderedDict[tuple[str, str | int, str], _Book] = OrderedDict()

    def remember(self, id: str, answered: Answered) -> None:
        self._answers[id] = answered
        while len(self._answers) > self._memory:
            forgotten, _ = self._answers.popitem(last=False)
            self._labels.pop(forgotten, None)

    def take(self, id: str, label: Label) -> Taken:
        """Count a label once; the same one again changes nothing, and another one does not either.

        Raises as `Answered.correct`.
        """
        answered = self._answers.get(id)
        if answered is None:
            return Taken("unknown")
        correct = answered.correct(label)
        if id in self._labels:
            status: Status = "repeated" if self._labels[id] == label else "contradicted"
            return Taken(status, answered, answered.correct(self._labels[id]))
        self._labels[id] = label
        return Taken("counted", answered, correct, self._book(answered).add(answered, correct))

    def figures(self) -> list[Figures]:
        """Of every candidate with labels, the one labelled last at the end."""
        return [book.figures(*key) for key, book in self._books.items()]

    def figures_of(self, answered: Answered) -> Figures:
        """Of the candidate that gave an answer."""
        return self._book(answered).figures(answered.task, answered.version, answered.candidate)

    def check(self) -> None:
        assert len(self._answers) <= self._memory, "no more than may be"
        assert self._labels.keys() <= self._answers.keys(), "labels of forgotten answers go with them"
        assert len(self._books) <= BOOKS, "no more books than may be"

    def _book(self, answered: Answered) -> _Book:
        key = (answered.task, answered.version, answered.candidate)
        book = self._books.setdefault(key, _Book())
        self._books.move_to_end(key)
        if len(self._books) > BOOKS:
            self._books.popitem(last=False)
        return book


def stake() -> Wealth:
    """What the gambler has in each of the bets before the first label [BETS]; the rest of the 1 is in `reserve`."""
    return np.full(BETS, AT_ONCE / BETS)


def reserve(labels: int) -> float:
    """What is not yet bet after so many labels. It never quite ends."""
    return (1 - AT_ONCE) / (1 + math.log1p(labels / PACE))


def bet(wealth: Wealth, labels: int, wrong: bool | NDArray[np.bool_], promised: float) -> Wealth:
    """The bets [..., BETS] after one more answer, the one after `labels` others, was `wrong` [...] or not.

    Every factor is a ratio of likelihoods, whose mean is 1 if wrong answers are just as frequent as promised and less if
    they are rarer. `promised` may differ from label to label, but must be known before the label.
    """
    allowed = float(np.clip(1 - promised, 1e-6, 1 - 1e-6))
    odds = allowed / (1 - allowed) * np.geomspace(LEAST, MOST, BETS)
    rate = odds / (1 + odds)
    factor = np.where(np.expand_dims(wrong, -1), rate / allowed, (1 - rate) / (1 - allowed))
    fresh = (reserve(labels) - reserve(labels + 1)) / BETS
    return np.minimum(wealth * factor + fresh, RICH)


def evidence(wealth: Wealth, labels: int) -> NDArray[np.float64]:
    """The whole fortune [...] from bets [..., BETS], as a multiple of the stake."""
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
class _Book:
    """All that is counted of one candidate."""

    levels: dict[str, _Level] = field(default_factory=dict)
    wealth: Wealth = field(default_factory=stake)
    promised: float | None = None
    labels: int = 0
    correct: int = 0
    broken: bool = False

    def add(self, answered: Answered, correct: bool) -> bool:
        """Whether this broke the promise."""
        self.levels.setdefault(answered.level, _Level()).add(answered.confidence, correct)
        if answered.promised is None:
            return False
        self.promised = answered.promised
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


def _shown(label: Label) -> str:
    shown = repr(label)
    return shown if len(shown) <= 80 else shown[:80] + "..."


def _listed(classes: tuple[str, ...]) -> str:
    first = ", ".join(classes[:10])
    return first if len(classes) <= 10 else f"{first} and {len(classes) - 10} more"
