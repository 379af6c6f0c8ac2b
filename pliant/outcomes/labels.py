"""Labelled outcomes as they are kept for retraining, and which of them may teach.

A stranger who may post labels must not move the next champion. What protects it: a label counts only for an answer that its
tenant got, so nobody labels more than he asked; a label says which tenant reported it; those of clients without a key teach
nothing; and of the labels that teach in a task no tenant has more than a share (pliant/fairness.py), unless it is trusted.
Where fewer tenants label than that share needs (below four for a quarter) and none is trusted, nothing is taught.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field

from pliant.fairness import SHARE, largest_equal_part
from pliant.state import Finite, Sum, read

Label = str | Finite
Confidence = Annotated[float, Field(ge=0, le=1 + 1e-6)]
"""A probability; one of single precision may be a little over 1."""


DECLARED = "the slice "


def slices_of(label: Label, tenant: str = "", declared: str = "") -> tuple[str, ...]:
    """Return the slices of a labelled answer: its class, whose it is, and what whoever labelled it declared."""
    named = (f"the class {label}" if isinstance(label, str) else "", tenant and f"the tenant {tenant}")
    return tuple(filter(None, (*named, declared and DECLARED + declared)))


@dataclass(frozen=True, slots=True)
class LabelRecord:
    """A label that counted, with the answer that it is of. But for a slice's name it holds nothing that people wrote."""

    id: str  # of the answer
    task: str
    version: str | int
    candidate: str
    level: str
    predicted: Label
    confidence: Confidence
    former: dict[str, tuple[Label, Confidence]]  # former level -> label and confidence that it gave
    label: Label
    correct: bool
    tenant: str  # of the client that reported it
    key: str  # of that client; empty: it had none
    at: Finite  # seconds since 1970
    answered_at: Finite
    weight: Sum = 1.0  # of it in an estimate: see `Tracker.take`
    slices: tuple[str, ...] = ()  # that it is of: see `slices_of`

    def to_line(self) -> str:
        """Return the record as a line of JSON, without its end."""
        return json.dumps(asdict(self))


def record_of(line: str) -> LabelRecord:
    """Return the record that `LabelRecord.to_line` wrote. Raises `InputError` for any other line."""
    return read(LabelRecord, line, "a label as a service writes it")


def teachable(
    labels: Iterable[LabelRecord], trusted: Collection[str] = (), share: float = SHARE
) -> tuple[LabelRecord, ...]:
    """Return the labels from which may be learnt, in their order.

    Of an answer's labels the first of those with the most weight is taken, and none of a client without a key, unless the
    tenant "" is in `trusted`. In each task a tenant that is not trusted has at most `share` (from 0 to 1) of what is
    returned: of its labels the latest. No tenant could have one more.
    """
    first: dict[tuple[str, str], LabelRecord] = {}
    for record in labels:
        if record.tenant in trusted or (record.key and record.tenant):
            before = first.setdefault((record.task, record.id), record)
            if before.weight < record.weight:
                first[record.task, record.id] = record
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
