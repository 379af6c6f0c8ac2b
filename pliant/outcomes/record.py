"""What is counted of one candidate: the labelled answers of each level by confidence, and the bets against its promise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.fairness import GROUPS, Groups, WithoutEach
from pliant.outcomes.answered import Answered
from pliant.outcomes.betting import BETS, CONFIDENCE, Wealth, bet, evidence, initial_wealth
from pliant.outcomes.figures import Figures, Key, LevelFigures, Report, ReportedLabel

BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
TARGET = 1 / (1 - CONFIDENCE)  # the evidence that breaks a promise
MAX_REPORTS = 200  # labels of one candidate that an alarm shows, the latest ones


class _Level:
    """Sums over the labelled answers of one level, by bin of their confidence."""

    def __init__(self) -> None:
        self.labels: NDArray[np.int64] = np.zeros(BINS, np.int64)
        self.confidence: NDArray[np.float64] = np.zeros(BINS)
        self.correct: NDArray[np.int64] = np.zeros(BINS, np.int64)

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


class _Bets:
    """The bets against a promise from some of the labels."""

    def __init__(self, labels: int = 0, wealth: Wealth | None = None) -> None:
        self.labels, self.wealth = labels, initial_wealth() if wealth is None else wealth

    def add(self, wrong: bool, promised: float) -> None:
        self.wealth = bet(self.wealth, self.labels, wrong, promised)
        self.labels += 1

    @property
    def evidence(self) -> float:
        return float(evidence(self.wealth, self.labels))

    def state(self) -> list[Any]:
        return [self.labels, self.wealth.tolist()]

    @classmethod
    def restored(cls, state: list[Any]) -> _Bets:
        labels, wealth = int(state[0]), np.array(state[1], np.float64)
        if wealth.shape != (BETS,) or not (wealth >= 0).all():
            raise ValueError(f"wealth needs {BETS} numbers of at least 0")
        return cls(labels, wealth)


@dataclass(frozen=True, slots=True)
class RecordState:
    """A copy of a record, which another thread may write to disk: plain numbers, and the latest labels."""

    counts: Mapping[str, Any]
    reports: tuple[ReportedLabel, ...] = field(repr=False)


class Record:
    """Counts the labels of one candidate.

    A promise is `broken` by all labels together, which an alarm shows. It is `refuted`, which others act on, where the
    labels that may teach break it without those of any one group of tenants, too (pliant/fairness.py).
    """

    def __init__(self) -> None:
        self.levels: dict[str, _Level] = {}
        self.promised: float | None = None
        self.correct, self.broken, self.refuted = 0, False, False
        self.reports: deque[ReportedLabel] = deque(maxlen=MAX_REPORTS)
        self._bets, self._groups = _Bets(), Groups()
        self._teaching = WithoutEach(_Bets())

    @property
    def labels(self) -> int:
        return self._bets.labels

    def add(self, answered: Answered, reported: ReportedLabel, tenant: str | None = "") -> bool:
        """Count an answer. `tenant`: whose evidence its label is, "" where that is not capped; None: it teaches nothing.

        Returns whether it broke the promise.
        """
        correct = reported.correct
        self.levels.setdefault(answered.level, _Level()).add(answered.confidence, correct)
        if answered.promised is None:
            return False
        self.promised = answered.promised
        self.reports.append(reported)
        self._bets.add(not correct, answered.promised)
        self.correct += correct
        if tenant is not None:
            for bets in self._teaching.seeing(self._groups.of(tenant)):
                bets.add(not correct, answered.promised)
            self.refuted |= all(bets.evidence >= TARGET for bets in self._teaching.every)
        before, self.broken = self.broken, self.broken or self.evidence >= TARGET
        return self.broken and not before

    @property
    def evidence(self) -> float:
        return self._bets.evidence

    def figures(self, key: Key) -> Figures:
        """Return the figures; `key` says of what they are."""
        accuracy = self.correct / self.labels if self.labels else math.nan
        levels = tuple(level.figures(name) for name, level in self.levels.items())
        return Figures(*key, self.promised, self.labels, accuracy, self.evidence, self.broken, levels)

    def state(self) -> RecordState:
        """Return a copy, in some microseconds."""
        levels = {
            name: [level.labels.tolist(), level.confidence.tolist(), level.correct.tolist()]
            for name, level in self.levels.items()
        }
        counts = {
            "levels": levels,
            "wealth": self._bets.wealth.tolist(),
            "promised": self.promised,
            "labels": self.labels,
            "correct": self.correct,
            "broken": self.broken,
            "refuted": self.refuted,
            "tenants": self._groups.tenants,
            "teaching": self._teaching.whole.state(),
            "without": {str(group): bets.state() for group, bets in self._teaching.without.items()},
        }
        return RecordState(counts, tuple(self.reports))

    @classmethod
    def restored(cls, state: RecordState) -> Record:
        """Return the record of which `state` is a copy. Raises `ValueError`, `KeyError` or `TypeError` if it is none."""
        record, counts = cls(), state.counts
        for name, sums in counts["levels"].items():
            labels, confidence, correct = sums
            if not len(labels) == len(confidence) == len(correct) == BINS:
                raise ValueError(f"level {name} needs {BINS} bins")
            level = _Level()
            level.labels, level.correct = np.array(labels, np.int64), np.array(correct, np.int64)
            level.confidence = np.array(confidence, np.float64)
            record.levels[str(name)] = level
        record._bets = _Bets.restored([counts["labels"], counts["wealth"]])
        promised = counts["promised"]
        record.promised = None if promised is None else float(promised)
        record.correct, record.broken = int(counts["correct"]), bool(counts["broken"])
        if "teaching" in counts:  # what former versions wrote lacks it
            record.refuted, record._groups = (
                bool(counts["refuted"]),
                Groups({str(tenant): at % GROUPS for at, tenant in enumerate(counts["tenants"])}),
            )
            record._teaching.whole = _Bets.restored(counts["teaching"])
            without = {int(group): _Bets.restored(bets) for group, bets in counts["without"].items()}
            record._teaching.without.update(without)
        record.reports.extend(state.reports)
        return record


def report_to_list(entry: ReportedLabel) -> list[Any]:
    """Return a reported label as JSON values."""
    return [entry.id, entry.label, entry.correct, entry.report.tenant, entry.report.key, entry.report.at]


def report_from_list(values: list[Any]) -> ReportedLabel:
    """Return the reported label that `report_to_list` wrote. Raises `ValueError` or `TypeError`."""
    id, label, correct, tenant, key, at = values
    return ReportedLabel(str(id), label, bool(correct), Report(str(tenant), str(key), float(at)))
