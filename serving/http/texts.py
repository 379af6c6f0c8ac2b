"""What a text is in any request, and how many of them one may hold. Knows fields' names and limits; no systems, no models.

A text has at least one visible character and at most TEXT_BYTES in UTF-8. Control characters other than tab and the ends of
lines become spaces, one for one; lone halves of surrogate pairs, which UTF-8 cannot hold, are refused. Texts with more
tokens than a model reads are no matter of this file.
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
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

Texts = tuple[tuple[str, str | None], ...]
"""One or more texts, or pairs of texts: the second of each is None where it is a single text."""


@dataclass(frozen=True, slots=True)
class Given:
    """One text or pair of a question, unchecked, with the names that errors call them by."""

    name: str
    names: tuple[str, ...]
    parts: tuple[object, ...]  # one or two


def check_count(name: str, texts: Sequence[object], most: int) -> None:
    if len(texts) > most:
        raise ApiError(413, "too_many_texts", f"{name} is a list of {len(texts)}, but must be at most {most}", name)
    if not texts:
        raise InputError(name, "empty", "a list of at least one text")


def clean(name: str, value: object) -> tuple[str, int]:
    """The text, and how many characters of it were cleaned. Raises `InputError`, or `ApiError` (413) for a long one."""
    if not isinstance(value, str):
        raise InputError(name, shorten(value), "a text")
    size = _bytes(name, value)
    if size > TEXT_BYTES:
        raise ApiError(413, "text_too_long", f"{name} is {size} bytes, but must be at most {TEXT_BYTES} bytes", name)
    text, cleaned = CONTROL.subn(" ", value)
    if not any(unicodedata.category(character)[0] not in "CZ" for character in text):
        raise InputError(name, shorten(value), "a text with at least one visible character")
    return text, cleaned


def _bytes(name: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        found = f"a text with the lone surrogate {shorten(text[error.start])} at character {error.start}"
        raise InputError(name, found, "a text that UTF-8 can hold") from None
