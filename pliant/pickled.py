"""Makes frozen dataclasses with slots cheap to pickle: the standard library looks their fields up for every object."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TypeVar

T = TypeVar("T")


def pickled_by_fields(kind: type[T]) -> type[T]:
    """Let objects of a dataclass of two fields or more be pickled as a call of the class with its fields, in their order."""
    values = attrgetter(*(field.name for field in fields(kind)))  # type: ignore[arg-type]

    def reduce(self: T) -> tuple[type[T], tuple[object, ...]]:
        return kind, values(self)

    kind.__reduce__ = reduce  # type: ignore[method-assign,assignment]
    return kind
