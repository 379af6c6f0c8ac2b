"""Lines of JSON for what survives a restart: what answers share, figures of a candidate, and alarms.

Each reader raises `InputError` for a line that its writer did not write.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, TypeVar

from pliant.errors import InputError
from pliant.outcomes.answered import Answered
from pliant.outcomes.figures import Alarm, Figures, Key, LevelFigures, Report
from pliant.outcomes.record import Record, RecordState, report_from_list, report_to_list

T = TypeVar("T")


def common_to_line(common: Answered) -> str:
    """Return what the answers of several rows share (`Row.common`)."""
    return json.dumps(asdict(common))


def common_from_line(line: str) -> Answered:
    """Return what `common_to_line` wrote."""

    def read(values: dict[str, Any]) -> Answered:
        if set(values) != {field.name for field in fields(Answered)}:
            raise ValueError("it has other fields")
        names = {name: tuple(map(str, values[name])) for name in ("classes", "former_levels")}
        promised = values["promised"]
        numbers = {"promised": None if promised is None else float(promised), "tolerance": float(values["tolerance"])}
        return Answered(**{**values, **names, **numbers, "former": ()})

    return _read(line, "what answers share", read)


def record_to_line(key: Key, state: RecordState) -> str:
    """Return the figures of a candidate."""
    reports = [report_to_list(entry) for entry in state.reports]
    return json.dumps({"key": key, "counts": dict(state.counts), "reports": reports})


def record_from_line(line: str) -> tuple[Key, Record]:
    """Return what `record_to_line` wrote."""

    def read(values: dict[str, Any]) -> tuple[Key, Record]:
        task, version, candidate = values["key"]
        reports = tuple(report_from_list(entry) for entry in values["reports"])
        return (str(task), version, str(candidate)), Record.restored(RecordState(values["counts"], reports))

    return _read(line, "figures of a candidate", read)


def alarm_to_line(alarm: Alarm) -> str:
    """Return an alarm."""
    back = alarm.taken_back
    labels = [report_to_list(entry) for entry in alarm.labels]
    taken_back = None if back is None else asdict(back)
    figures = asdict(alarm.figures)
    return json.dumps({"id": alarm.id, "at": alarm.at, "figures": figures, "labels": labels, "taken_back": taken_back})


def alarm_from_line(line: str) -> Alarm:
    """Return what `alarm_to_line` wrote."""

    def read(values: dict[str, Any]) -> Alarm:
        levels = tuple(LevelFigures(**level) for level in values["figures"].pop("levels"))
        figures = Figures(**values["figures"], levels=levels)
        back = values["taken_back"]
        labels = tuple(report_from_list(entry) for entry in values["labels"])
        taken_back = None if back is None else Report(**back)
        return Alarm(int(values["id"]), float(values["at"]), figures, labels, taken_back)

    return _read(line, "an alarm", read)


def _read(line: str, expected: str, read: Callable[[dict[str, Any]], T]) -> T:
    try:
        return read(json.loads(line))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError("line", line[:80], f"{expected} ({error})") from None
