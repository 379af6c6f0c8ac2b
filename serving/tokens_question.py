"""From a request's body to a checked question. Knows HTTP bodies (multipart or JSON), fields and their limits.

Parsed by hand and not by a schema library: it is on the path of every request, and each refusal must name the field,
the value and the limit. Every byte is counted as it comes, so a chunked body cannot pass the limit either.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from pliant.errors import InputError
from serving.refusals import Refusal

FIELDS = ("image", "task", "deadline", "utility")
REQUIRED = ("image", "task", "deadline")
NUMBERS = ("deadline", "utility")
FIELD_BYTES = 4096  # of a form's text field
SHOWN = 80  # characters of a refused value that a message repeats


@dataclass(frozen=True, slots=True)
class Question:
    image: bytes
    task: str
    deadline: float  # seconds
    utility: float


async def read_question(request: Request, most_bytes: int, most_deadline: float) -> Question:
    """Raises `Refusal` or `InputError` for anything but a whole, valid question."""
    kind = _content_type(request)
    if kind not in ("application/json", "multipart/form-data"):
        found = kind or "missing"
        raise Refusal(
            415, "unsupported_media_type", f"content-type is {found}, but must be {_ACCEPTED}", "content-type"
        )
    body = await read_body(request, most_bytes)
    fields = parse_json(body) if kind == "application/json" else await _parse_form(request, body)
    check_names(fields, FIELDS, REQUIRED)
    return Question(
        image=_image(fields["image"]),
        task=text(fields, "task"),
        deadline=_deadline(fields["deadline"], most_deadline),
        utility=_utility(fields.get("utility", 1.0)),
    )


async def read_body(request: Request, most_bytes: int) -> bytes:
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > most_bytes:
        raise _too_large(f"{announced} bytes", most_bytes)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise _too_large("longer", most_bytes)
    return bytes(body)


def parse_json(body: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "malformed", f"body is not JSON: {str(error)[:SHOWN]}", "body") from None
    if not isinstance(fields, dict):
        raise Refusal(400, "malformed", f"body is a JSON {type(fields).__name__}, but must be an object", "body")
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


def shorten(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "..."


_ACCEPTED = "multipart/form-data with a file field `image`, or application/json with `image` in base64"


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_large(found: str, most_bytes: int) -> Refusal:
    return Refusal(413, "body_too_large", f"body is {found}, but must be at most {most_bytes} bytes", "body")


async def _parse_form(request: Request, body: bytes) -> Mapping[str, Any]:
    parser = MultiPartParser(request.headers, _whole(body), max_files=1, max_fields=8, max_part_size=FIELD_BYTES)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError) as error:
        raise Refusal(400, "malformed", f"body is no multipart form: {error}", "body") from None
    names = [name for name, _ in form.multi_items()]
    for name in names:
        if names.count(name) > 1:
            raise InputError(shorten(name), f"given {names.count(name)} times", "given once")
    return {name: await _form_value(name, value) for name, value in form.items()}


async def _whole(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body
    yield b""


async def _form_value(name: str, value: UploadFile | str) -> bytes | str | float:
    if isinstance(value, UploadFile):
        try:
            return await value.read()
        finally:
            await value.close()
    if name not in NUMBERS:
        return value
    try:
        return float(value)
    except ValueError:
        raise InputError(name, shorten(value), "a number") from None


def _image(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            try:
                return base64.b64decode(value, validate=True)
            except ValueError as error:
                raise InputError("image", shorten(value), f"a file, or its bytes in base64 ({error})") from None
    raise InputError("image", shorten(value), "a file, or its bytes in base64")


def _deadline(value: object, most: float) -> float:
    deadline = _number("deadline", value)
    if not 0 < deadline <= most:
        raise InputError("deadline", f"{deadline:g}", f"more than 0 and at most {most:g} seconds from now")
    return deadline


def _utility(value: object) -> float:
    utility = _number("utility", value)
    if not 0 <= utility < math.inf:
        raise InputError("utility", f"{utility:g}", "0 or more, and finite")
    return utility


def _number(name: str, value: object) -> float:
    """NaN passes here and fails its limit; JSON's true is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(name, shorten(value), "a number")
    try:
        return float(value)
    except OverflowError:
        raise InputError(name, shorten(value), "a number of reasonable size") from None
