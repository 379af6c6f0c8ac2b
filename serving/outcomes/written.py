"""Writes labels, figures and alarms as JSON values, in the words of a system."""

from __future__ import annotations

import math
from collections import Counter as Tally
from dataclasses import asdict, dataclass
from typing import Any

from pliant.outcomes.answered import Answered
from pliant.outcomes.figures import Alarm, Figures, LabelResult


@dataclass(frozen=True, slots=True)
class Names:
    """How a system calls a candidate, and the level that answered; None: each candidate has one level, not named.

    The names stand in answers and are labels of metrics.
    """

    candidate: str
    level: str | None

    @property
    def how(self) -> tuple[str, ...]:
        """Return the names of what says how an answer came about."""
        return (self.candidate,) if self.level is None else (self.candidate, self.level)

    def how_of(self, candidate: str, level: str) -> tuple[str, ...]:
        """Return the values for `how`."""
        return (candidate,) if self.level is None else (candidate, level)


LEVELS = Names("candidate", "level")


def taken_written(names: Names, id: str, answered: Answered, taken: LabelResult, figures: Figures) -> dict[str, Any]:
    """Return the answer to a label."""
    promise = {
        "promised": figures.promised,
        "accuracy": figures.accuracy,
        "labels": figures.labels,
        "evidence": figures.evidence,
        "broken": figures.broken,
    }
    return {
        "id": id,
        "task": answered.task,
        "version": answered.version,
        **dict(zip(names.how, names.how_of(answered.candidate, answered.level), strict=True)),
        "correct": taken.correct,
        "repeated": taken.status == "repeated",
        "promise": _finite(promise),
    }


def figures_written(names: Names, figures: Figures) -> dict[str, Any]:
    """Return the figures of a candidate. Where levels are not named, those of its one level stand beside the others."""
    values = {names.candidate if name == "candidate" else name: value for name, value in asdict(figures).items()}
    if names.level is None:
        levels = values.pop("levels")
        values["confidence"] = levels[0]["confidence"] if levels else None
        values["calibration_error"] = levels[0]["error"] if levels else None
    return _finite(values)


def alarm_written(names: Names, alarm: Alarm) -> dict[str, Any]:
    """Return an alarm, with a count of its labels by tenant: false ones often come from one."""
    tally = Tally((entry.report.tenant, entry.correct) for entry in alarm.labels)
    tenants = dict.fromkeys(entry.report.tenant for entry in alarm.labels)
    return {
        "id": str(alarm.id),
        "at": alarm.at,
        **figures_written(names, alarm.figures),
        "labels_by_tenant": {name: {"correct": tally[name, True], "wrong": tally[name, False]} for name in tenants},
        "latest_labels": [
            {"id": entry.id, "label": entry.label, "correct": entry.correct, **asdict(entry.report)}
            for entry in alarm.labels
        ],
        "taken_back": asdict(alarm.taken_back) if alarm.taken_back else None,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, since JSON has no NaN."""
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in values.items()}
