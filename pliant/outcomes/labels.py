"""Labelled outcomes as they are kept for retraining, and which of them may teach.

A stranger who may post labels must not move the next champion. What protects it: a label counts only for an answer that its
tenant got, so nobody labels more than he asked; a label says which tenant reported it; those of clients without a key teach
nothing; and of the labels that teach in a task no tenant has more than a share (pliant/fairness.py), unless it is trusted.
Where fewer tenants label than that share needs (below four for a quarter) and none is trusted, nothing is taught.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pliant.errors import InputError
from pliant.fairness import SHARE, largest_equal_part
from pliant.outcomes.answered import Label


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """A label that counted, with the answer that it is of. It holds nothing that people wrote or sent."""

    id: str  # of the answer
    task: str
    version: str | int
    candidate: str
    level: str
    predicted: Label
    confidence: float
    former: Mapping[str, tuple[Label, float]]  # former level -> label and confidence that it gave
    label: Label
    correct: bool
    tenant: str  # of the client that reported it
    key: str  # of that client; empty: it had none
    at: float  # seconds since 1970
    answered_at: float

    def to_line(self) -> str:
        """Return the record as a line of JSON, without its end."""
        return json.dumps(asdict(self))


def record_of(line: str) -> LabelRecord:
    """Return the record that `LabelRecord.to_line` wrote. Raises `InputError` for any other line."""
    try:
        values = json.loads(line)
        if not isinstance(values, dict) or set(values) != {field.name for field in fields(LabelRecord)}:
            raise ValueError("it has other fields")
        former = {str(n): (_label(label), _confidence(share)) for n, (label, share) in values.pop("former").items()}
        for name in ("predicted", "label"):
            _label(values[name])
        for name in ("id", "task", "candidate", "level", "tenant", "key"):
            _check(isinstance(values[name], str), name)
        _check(isinstance(values["correct"], bool), "correct")
        _check(isinstance(values["version"], str | int) and not isinstance(values["version"], bool), "version")
        numbers = {name: _finite(values[name], name) for name in ("at", "answered_at")}
        numbers["confidence"] = _confidence(values["confidence"])
        return LabelRecord(**{**values, **numbers, "former": former})
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
        raise InputError("line", line[:80], f"a label as a service writes it ({error})") from None


def teachable(
    labels: Iterable[LabelRecord], trusted: Collection[str] = (), share: float = SHARE
) -> tuple[LabelRecord, ...]:
    """Return the labels from which may be learnt, in their order.

    A label of an answer that had one before is left out, and so is one of a client without a key, unless the tenant "" is
    in `trusted`. In each task a tenant that is not trusted has at most `share` (from 0 to 1) of what is returned: of its
    labels the latest. No tenant could have one more.
    """
    first: dict[tuple[str, str], LabelRecord] = {}
    for record in labels:
        if record.tenant in trusted or (record.key and record.tenant):
            first.setdefault((record.task, record.id), record)
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for record in first.values():
        counts[record.task][record.tenant] += 1
    room: dict[tuple[str, str], int] = {}
    for task, tenants in counts.items():
        limit = largest_equal_part(
            sum(count for name, count in tenants.items() if name in trusted),
            [count for name, count in tenants.items() if name not in trusted],
            share,
        )
        room |= {(task, name): count if name in trusted else min(count, limit) for name, count in tenants.items()}
    chosen = []
    for record in reversed(first.values()):
        place = record.task, record.tenant
        if room[place]:
            room[place] -= 1
            chosen.append(record)
    return tuple(reversed(chosen))


def _label(value: Any) -> Label:
    return value if isinstance(value, str) else _finite(value, "a label")


def _confidence(value: Any) -> float:
    """Return a probability; one of single precision may be a little over 1."""
    number = _finite(value, "a confidence")
    _check(0 <= number <= 1 + 1e-6, "a confidence")
    return number


def _finite(value: Any, name: str) -> float:
    """Return a number that is not NaN (which no comparison orders) or infinite, as a float."""
    _check(isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value), name)
    return float(value)


def _check(valid: bool, name: str) -> None:
    if not valid:
        raise ValueError(f"{name} is of another kind")
