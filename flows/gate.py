"""What a gate's verdict is made of: who passed, why, and the figures of either side. Knows no system and no Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Side = TypeVar("Side")
"""A system's figures of one side."""
FIRST = "there is no champion yet"


@dataclass(frozen=True, slots=True)
class Judged(Generic[Side]):
    """`champion` is None where there is none."""

    passed: bool
    reason: str
    challenger: Side
    champion: Side | None = None


def worse(unless: bool, found: str, champions: str) -> str:
    """What speaks against the challenger: it `found` this, and the champion that. Empty where it is no worse."""
    return "" if unless else f"{found}, worse than the champion's {champions}"


def reason(verdicts: Mapping[str, Judged[Any]]) -> str:
    """Of all that were judged, by name; of one, without it."""
    if len(verdicts) == 1:
        return next(iter(verdicts.values())).reason
    return "; ".join(f"{name}: {verdict.reason}" for name, verdict in verdicts.items())


def told(verdicts: Mapping[str, Judged[Any]]) -> str:
    """As a list in Markdown."""
    return "\n".join(
        f"- {name}: {'passed' if one.passed else 'failed'}, {one.reason}" for name, one in verdicts.items()
    )
