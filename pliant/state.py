"""State that survives a restart: dataclasses as JSON values (`dataclasses.asdict`), read back by their annotations."""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from pliant.errors import InputError

T = TypeVar("T")

Whole = Annotated[int, Field(ge=0)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Sum = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read(kind: type[T], content: Any, expected: str, extra: Literal["forbid", "ignore"] = "forbid") -> T:
    """Return the `kind` whose `asdict` gave these JSON values, or their text.

    Types are exact. Raises `InputError`, which names what was `expected`, for anything else.
    """
    try:
        text = content if isinstance(content, str) else json.dumps(content)
        of: Any = kind
        value: T = _adapter(of).validate_json(text, strict=True, extra=extra)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError("state", repr(content)[:80], f"{expected} ({place}: {first['msg'][:200]})") from None
    except (TypeError, ValueError, RecursionError) as error:  # no JSON
        raise InputError("state", repr(content)[:80], f"{expected} ({str(error)[:200]})") from None
    return value
