"""Reads a request's body, for all endpoints that take JSON. bodies.py says what is in it.

Bytes are counted as they arrive, so a chunked body cannot exceed the limit either.
"""

from __future__ import annotations

import json
import reprlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from pliant.errors import InputError
from pliant.serving.http.api_errors import ApiError

SHOWN = 80  # characters of an invalid value that a message repeats
DIGITS = 18  # of content-length that are read: already far above any limit


def content_type(request: Request) -> str:
    """Return the media type in lower case, without parameters; empty if missing."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_type(request: Request, accepted: tuple[str, ...], sentence: str) -> str:
    """Return the content type. Raises `ApiError` (415) unless it is `accepted`; `sentence` lists these for people.

    It is raised for a body that is compressed, too: only the Open Inference Protocol knows such ones (oip/body.py).
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        message = f"content-encoding is {encoding[:SHOWN]}, but must be identity: send the body as it is"
        headers = {"accept-encoding": "identity"}
        raise ApiError(415, "unsupported_encoding", message, "content-encoding", headers=headers)
    kind = content_type(request)
    if kind not in accepted:
        message = f"content-type is {kind[:SHOWN] or 'missing'}, but must be {sentence}"
        raise ApiError(415, "unsupported_media_type", message, "content-type")
    return kind


async def read_body(request: Request, max_bytes: int) -> list[bytes]:
    """Return the whole body, in the pieces in which it came. Raises `ApiError` (413) for more than `max_bytes`.

    They are not put together: that takes the event loop some 5 ms for ten megabytes, which are as many new pages.
    """
    announced = request.headers.get("content-length", "0")[:DIGITS]
    if announced.isdecimal() and int(announced) > max_bytes:
        raise too_large(f"{announced} bytes", max_bytes)
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            raise too_large("longer", max_bytes)
    return chunks


def parse_value(body: bytes) -> Any:
    """Return the JSON value of a UTF-8 body. NaN and Infinity pass, and fail the check of their field.

    Raises `ApiError` (400) if it is not JSON, `InputError` for an object that has a field twice.
    """
    try:
        return json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, "malformed", f"body is not JSON: {str(error)[:SHOWN]}", "body") from None


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the fields of a JSON object. Raises `ApiError` (400) for any other value."""
    if not isinstance(value, dict):
        raise ApiError(400, "malformed", f"body is a JSON {type(value).__name__}, but must be an object", "body")
    return value


def shorten(value: object) -> str:
    """Return a value as a message shows it: at most `SHOWN` characters and three dots."""
    shown = reprlib.repr(value) if isinstance(value, dict | list) else repr(value)  # repr fails if nested too deep
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        (name, times), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(shorten(name), f"given {times} times", "given once")
    return fields


def too_large(size: str, max_bytes: int) -> ApiError:
    """Return the error for a body of `size` that exceeds `max_bytes`."""
    return ApiError(413, "body_too_large", f"body is {size}, but must be at most {max_bytes} bytes", "body")
