"""What is counted of one candidate: the labelled answers of each level by confidence, and the bets against its promise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.outcomes.answered import Answered
from pliant.outcomes.betting import BETS, CONFIDENCE, Wealth, bet, evidence, initial_wealth
from pliant.outcomes.figures import Figures, Key, LevelFigures, Report, ReportedLabel

BINS = 15  # of the expected calibration error, as in pliant/cascade/calibrate.py
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


@dataclass(frozen=True, slots=True)
class RecordState:
    """A copy of a record, which another thread may write to disk: plain numbers, and the latest labels."""

    counts: Mapping[str, Any]
    reports: tuple[ReportedLabel, ...] = field(repr=False)


class Record:
    """Counts the labels of one candidate."""

    def __init__(self) -> None:
        self.levels: dict[str, _Level] = {}
        self.wealth: Wealth = initial_wealth()
        self.promised: float | None = None
        self.labels, self.correct, self.broken = 0, 0, False
        self.reports: deque[ReportedLabel] = deque(maxlen=MAX_REPORTS)

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
            "wealth": self.wealth.tolist(),
            "promised": self.promised,
            "labels": self.labels,
            "correct": self.correct,
            "broken": self.broken,
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
        record.wealth = np.array(counts["wealth"], np.float64)
        if record.wealth.shape != (BETS,) or not (record.wealth >= 0).all():
            raise ValueError(f"wealth needs {BETS} numbers of at least 0")
        promised = counts["promised"]
        record.promised = None if promised is None else float(promised)
        record.labels, record.correct = int(counts["labels"]), int(counts["correct"])
        record.broken = bool(counts["broken"])
        record.reports.extend(state.reports)
        return record


def report_to_list(entry: ReportedLabel) -> list[Any]:
    """Return a reported label as JSON values."""
    return [entry.id, entry.label, entry.correct, entry.report.tenant, entry.report.key, entry.report.at]


def report_from_list(values: list[Any]) -> ReportedLabel:
    """Return the reported label that `report_to_list` wrote. Raises `ValueError` or `TypeError`."""
    id, label, correct, tenant, key, at = values
    return ReportedLabel(str(id), label, bool(correct), Report(str(tenant), str(key), float(at)))
