"""Checks single values of a request's JSON fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pliant.errors import InputError
from serving.http.json_body import number, shorten


def whole(name: str, value: object, minimum: int, maximum: int | None = None) -> int:
    """Return a whole number. Raises `InputError` unless it is from `minimum` to `maximum` (None: any)."""
    allowed = f"from {minimum} on" if maximum is None else f"from {minimum} to {maximum}"
    upper = math.inf if maximum is None else maximum
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= upper:
        raise InputError(name, shorten(value), f"a whole number {allowed}")
    return value


def flag(fields: Mapping[str, Any], name: str, default: bool = False) -> bool:
    """Return a boolean field. Raises `InputError` for another type."""
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise InputError(name, shorten(value), "true or false")
    return value


def between(name: str, value: object, minimum: float, maximum: float) -> float:
    """Return a number. Raises `InputError` unless it is from `minimum` to `maximum`."""
    given = number(name, value)
    if not minimum <= given <= maximum:
        raise InputError(name, f"{given:g}", f"from {minimum:g} to {maximum:g}")
    return given
