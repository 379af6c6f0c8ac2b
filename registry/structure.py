"""Turns plain JSON values (arrays already in place) into a dataclass, by its type hints. Knows types, no files.

cattrs does the work; this file defines what it accepts as an array and as a union of plain types, and turns its groups of
exceptions into one sentence.
"""

from __future__ import annotations

from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np
from cattrs import Converter
from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
)

from pliant.errors import ArtifactError

T = TypeVar("T")

PLAIN = (bool, int, float, str, type(None))


def structure(cls: type[T], values: Any, where: str) -> T:
    """Return an instance of `cls`. Raises `ArtifactError` that names `where` and the first value that does not fit."""
    try:
        return _converter().structure(values, cls)
    except BaseValidationError as error:
        raise ArtifactError(f"{where} does not fit {cls.__name__}: {_first(error, 'it')}") from error


def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)
    converter.register_structure_hook_func(lambda kind: get_origin(kind) is np.ndarray, _array)
    converter.register_structure_hook_func(_is_plain_union, _plain)
    return converter


def _first(error: BaseException, path: str) -> str:
    """Return the first fault and its place. (cattrs' own `transform_error` forgets its formatter below the first level.)"""
    if not isinstance(error, ClassValidationError | IterableValidationError):
        return f"{path}: {_sentence(error)}"
    noted, bare = error.group_exceptions()
    if not noted:
        return _first(bare[0], path)
    inner, note = noted[0]
    step = f".{note.name}" if isinstance(note, AttributeValidationNote) else f"[{note.index!r}]"
    return _first(inner, path + step)


def _sentence(error: BaseException) -> str:
    if isinstance(error, ForbiddenExtraKeysError):
        fields = ", ".join(sorted(error.extra_fields))
        return f"this version of Pliant does not know its {fields}: a newer one wrote it; update this one"
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _array(value: Any, kind: Any) -> Any:
    (wanted,) = get_args(get_args(kind)[1])
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{value!r} where an array is needed")
    if wanted is not Any and value.dtype != np.dtype(wanted):
        raise TypeError(f"an array of {value.dtype} where {np.dtype(wanted)} is needed")
    return value


def _is_plain_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and set(get_args(kind)) <= set(PLAIN)


def _plain(value: Any, kind: Any) -> Any:
    if type(value) not in get_args(kind):
        raise TypeError(f"{value!r} where {kind} is needed")
    return value
