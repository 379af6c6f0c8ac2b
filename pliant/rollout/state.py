"""Reads numbers and texts of a stored state, which may be damaged: what is not as it was written is an `InputError`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from pliant.fairness import GROUPS, NOBODY


def field(state: Mapping[str, Any], name: str) -> Any:
    """Return a field of the state."""
    if not isinstance(state, Mapping) or name not in state:
        raise InputError("stored rollout", "damaged", f"an object with the field {name!r}")
    return state[name]


def table(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object."""
    value = field(state, name)
    if not isinstance(value, Mapping):
        raise InputError(name, value, "an object")
    return value


def real(state: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """Return a field that is a finite number from `low` to `high`."""
    return _number(field(state, name), name, low, high)


def count(state: Mapping[str, Any], name: str) -> int:
    """Return a field that is a whole number, at least 0."""
    value = field(state, name)
    if type(value) is not int or value < 0:
        raise InputError(name, value, "a whole number, at least 0")
    return value


def text(state: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text."""
    value = field(state, name)
    if not isinstance(value, str):
        raise InputError(name, value, "a text")
    return value


def items(state: Mapping[str, Any], name: str, most: int) -> list[Any]:
    """Return a field that is a list of at most `most` values."""
    value = field(state, name)
    if not isinstance(value, list) or len(value) > most:
        raise InputError(name, value, f"a list of at most {most} values")
    return value


def numbers(state: Mapping[str, Any], name: str, length: int, low: float, high: float) -> list[float]:
    """Return a field that is a list of `length` finite numbers from `low` to `high`."""
    values = items(state, name, length)
    if len(values) != length:
        raise InputError(name, values, f"{length} numbers")
    return [_number(value, name, low, high) for value in values]


def group_numbers(groups: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of each group of tenants (or of `NOBODY`) that is a name of the table, by that name."""
    known = {str(group): group for group in (NOBODY, *range(GROUPS))}
    for name in groups:
        if name not in known:
            raise InputError("group", name, f"{NOBODY} to {GROUPS - 1}")
    return {name: known[name] for name in groups}


def _number(value: object, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(name, value, "a number")
    if not (math.isfinite(value) and low <= value <= high):
        raise InputError(name, value, f"a finite number from {low:g} to {high:g}")
    return float(value)
