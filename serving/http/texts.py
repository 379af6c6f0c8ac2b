"""Checks the texts of a request, and how many there are.

A text has at least one visible character and at most TEXT_BYTES in UTF-8. Each control character other than tab and line
ends becomes a space; a lone half of a surrogate pair, which UTF-8 cannot hold, is an error. How many tokens a model reads
is checked later, by each system.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pliant.errors import InputError
from serving.http.api_errors import ApiError
from serving.http.json_body import shorten

TEXT_BYTES = 64 * 1024  # of one text in UTF-8
FIRST = 100  # characters of which nearly always one is visible
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Texts = tuple[tuple[str, str | None], ...]
"""One or more texts, or pairs of texts: the second of each is None where it is a single text."""


@dataclass(frozen=True, slots=True)
class RawText:
    """A text, or a pair of texts, as the request has it: not yet checked."""

    name: str  # in errors
    part_names: tuple[str, ...]  # in errors, of each part
    parts: tuple[object, ...]  # one or two


def check_count(name: str, texts: Sequence[object], maximum: int) -> None:
    """Raise `ApiError` (413) for more than `maximum` texts, `InputError` for none."""
    if len(texts) > maximum:
        message = f"{name} is a list of {len(texts)}, but must be at most {maximum}"
        raise ApiError(413, "too_many_texts", message, name)
    if not texts:
        raise InputError(name, "empty", "a list of at least one text")


def clean(name: str, value: object) -> tuple[str, int]:
    """Return the text, and how many control characters of it became spaces.

    Raises `InputError` for what is no text, `ApiError` (413) for one of more than TEXT_BYTES.
    """
    if not isinstance(value, str):
        raise InputError(name, shorten(value), "a text")
    size = _bytes(name, value)
    if size > TEXT_BYTES:
        raise ApiError(413, "text_too_long", f"{name} is {size} bytes, but must be at most {TEXT_BYTES} bytes", name)
    text, cleaned = CONTROL.subn(" ", value)
    if not (any(map(_is_visible, text[:FIRST])) or any(map(_is_visible, set(text)))):
        raise InputError(name, shorten(value), "a text with at least one visible character")
    return text, cleaned


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"


def _bytes(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        value = f"a text with the lone surrogate {shorten(text[error.start])} at character {error.start}"
        raise InputError(name, value, "a text that UTF-8 can hold") from None
