"""From a request's body to checked JSON fields: what all endpoints that take JSON have in common.

Parsed by hand and not by a schema library: it is on the path of every request, and each refusal must name the field,
the value and the limit. Every byte is counted as it comes, so a chunked body cannot pass the limit either.
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from pliant.errors import InputError
from serving.http.api_errors import ApiError

SHOWN = 80  # characters of a refused value that a message repeats
DIGITS = 18  # of a length; the first ones of a longer number are too large as well


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_type(request: Request, accepted: tuple[str, ...], sentence: str) -> str:
    """The content type. Raises `ApiError` (415) for another than the `accepted`, which the `sentence` lists."""
    kind = content_type(request)
    if kind not in accepted:
        found = kind[:SHOWN] or "missing"
        raise ApiError(
            415, "unsupported_media_type", f"content-type is {found}, but must be {sentence}", "content-type"
        )
    return kind


async def read_body(request: Request, most_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")[:DIGITS]
    if announced.isdecimal() and int(announced) > most_bytes:
        raise _too_large(f"{announced} bytes", most_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise _too_large("longer", most_bytes)
    return bytes(body)


def parse_value(body: bytes) -> Any:
    """Any JSON value in UTF-8. NaN and Infinity are parsed, and left to the limit of their field.

    Raises `ApiError` (400) for what is no JSON, and `InputError` for an object that names a field twice.
    """
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "malformed", f"body is not JSON: {str(error)[:SHOWN]}", "body") from None


def parse_json(body: bytes) -> Mapping[str, Any]:
    """Raises as `parse_value`, and for anything but an object."""
    fields = parse_value(body)
    if not isinstance(fields, dict):
        raise ApiError(400, "malformed", f"body is a JSON {type(fields).__name__}, but must be an object", "body")
    return fields


def check_names(fields: Mapping[str, Any], known: tuple[str, ...], required: tuple[str, ...]) -> None:
    for name in fields:
        if name not in known:
            raise InputError(shorten(name), "unknown", f"one of the fields {', '.join(known)}")
    for name in required:
        if name not in fields:
            raise InputError(name, "missing", f"given; required are {', '.join(required)}")


def text(fields: Mapping[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str) or not value:
        raise InputError(name, shorten(value), "a text that is not empty")
    return value


def number(name: str, value: object) -> float:
    """NaN passes here and fails its limit; JSON's true is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(name, shorten(value), "a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError(name, shorten(value), "a number of reasonable size") from None


def deadline(value: object, most: float, name: str = "deadline") -> float:
    seconds = number(name, value)
    if not 0 < seconds <= most:
        raise InputError(name, f"{seconds:g}", f"more than 0 and at most {most:g} seconds from now")
    return seconds


def utility(value: object) -> float:
    worth = number("utility", value)
    if not 0 <= worth < float("inf"):
        raise InputError("utility", f"{worth:g}", "0 or more, and finite")
    return worth


def shorten(value: object) -> str:
    shown = reprlib.repr(value) if isinstance(value, dict | list) else repr(value)  # nested too deep for repr, maybe
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (twice, times), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise InputError(shorten(twice), f"given {times} times", "given once")
    return fields


def _too_large(found: str, most_bytes: int) -> ApiError:
    return ApiError(413, "body_too_large", f"body is {found}, but must be at most {most_bytes} bytes", "body")
