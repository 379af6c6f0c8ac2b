"""Checks the texts of a request, and how many there are.

A text has at least one visible character and at most TEXT_BYTES in UTF-8. Each control character other than tab and line
ends becomes a space; a lone half of a surrogate pair, which UTF-8 cannot hold, is an error. How many tokens a model reads
is checked later, by each system.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import check_utf8, refusal, refused

TEXT_BYTES = 64 * 1024  # of one text in UTF-8
FIRST = 100  # characters of which nearly always one is visible
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Texts = tuple[tuple[str, str | None], ...]
"""One or more texts, or pairs of texts: the second of each is None where it is a single text."""


def check_count(name: str, texts: Sequence[object], maximum: int) -> None:
    """Raise `ApiError` (413) for more than `maximum` texts, `InputError` for none."""
    if len(texts) > maximum:
        message = f"{name} is a list of {len(texts)}, but must be at most {maximum}"
        raise ApiError(413, "too_many_texts", message, name)
    if not texts:
        raise InputError(name, "empty", "a list of at least one text")


def clean(name: str, text: str) -> str:
    """Return the text with a space for each control character. Raises `InputError` and `ApiError`."""
    try:
        return _clean(text)
    except PydanticCustomError as error:
        raise refusal(name, text, error.context or {}) from None


def cleaned(text: str) -> tuple[str, int]:
    """Return the text with a space for each control character, and how many these are."""
    return CONTROL.subn(" ", text)


def without_controls(text: str) -> str:
    """Return the text with a space for each control character."""
    return CONTROL.sub(" ", text)


def _checked(text: str) -> str:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = len(check_utf8(text))  # which says where the surrogate is
    if size > TEXT_BYTES:
        raise refused(f"at most {TEXT_BYTES} bytes", f"{size} bytes", 413, "text_too_long")
    if not (any(map(_is_visible, text[:FIRST])) or any(map(_is_visible, set(text)))):
        raise refused("a text with at least one visible character")
    return text


def _clean(text: str) -> str:
    return CONTROL.sub(" ", _checked(text))


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"


_DOCUMENTED = {
    "type": "string",
    "minLength": 1,
    "pattern": r"\S",
    "description": f"at least one visible character, at most {TEXT_BYTES} bytes of UTF-8",
}
VisibleText = Annotated[str, AfterValidator(_checked), WithJsonSchema(_DOCUMENTED)]
"""A text as the client wrote it."""
CleanText = Annotated[str, AfterValidator(_clean), WithJsonSchema(_DOCUMENTED)]
"""A text with a space for each control character."""
