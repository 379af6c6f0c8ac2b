"""Reads and parses a request's body, for all endpoints that take JSON. bodies.py says what is in it.

Bytes are counted as they arrive, so a chunked body cannot exceed the limit either. Small bodies are parsed at once,
large ones in a process: parsing holds the interpreter's lock, so that nothing else would run in the service, whichever
thread did it.
"""

from __future__ import annotations

import json
import reprlib
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pliant.errors import InputError, PliantError, WorkerError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.workers.helper_process import HelperProcess, help_out

SHOWN = 80  # characters of an invalid value that a message repeats
DIGITS = 18  # of content-length that are read: already far above any limit

INLINE_BYTES = 512 * 1024  # of a body of long texts that is parsed at once: about a millisecond
INLINE_VALUES = 2_000  # of a body that is parsed at once: about a millisecond
MAX_COST = 200_000  # of the values of a body: 1 each, a list or an object CONTAINER
CONTAINER = 20
PARSE_SECONDS = 5.0  # that parsing may take
HEAVY = "pliant.heavy"
"""Key of an ASGI scope: whether the body was large, so that checking its fields takes long too."""
P = ParamSpec("P")
T = TypeVar("T")


def content_type(request: Request) -> str:
    """Return the media type in lower case, without parameters; empty if missing."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def check_type(request: Request, accepted: tuple[str, ...], sentence: str) -> str:
    """Return the content type. Raises `ApiError` (415) unless it is `accepted`; `sentence` lists these for people.

    It is raised for a body that is compressed, too: only the Open Inference Protocol knows such ones (oip/request.py).
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


class BodyParser:
    """Parses the bodies of one service."""

    def __init__(self) -> None:
        self._process = HelperProcess("pliant.serving.http.json_body:main")

    async def parse(self, body: Sequence[bytes]) -> Any:
        """Return the JSON value of a body in pieces.

        Raises as `parse_value`, and `ApiError` for too many values or too much time.
        """
        if not is_large(body):
            return parse_value(b"".join(body))
        try:
            return await self._process.call(PARSE_SECONDS, body)
        except TimeoutError:
            raise ApiError(
                413, "body_too_large", f"body takes more than {PARSE_SECONDS:g} s to parse", "body"
            ) from None
        except WorkerError:
            raise ApiError(413, "body_too_large", "body takes too much memory to parse", "body") from None


def is_large(body: Sequence[bytes]) -> bool:
    """Whether parsing the body, which is in pieces, takes the event loop more than some milliseconds."""
    size = sum(map(len, body))
    if size <= INLINE_VALUES or size > INLINE_BYTES:
        return size > INLINE_BYTES
    return sum(piece.count(b",") + piece.count(b"[") + piece.count(b"{") for piece in body) > INLINE_VALUES


async def parse(request: Request, body: Sequence[bytes]) -> Any:
    """Return the JSON value of a request's body, which is in pieces. Raises as `BodyParser.parse`."""
    request.scope[HEAVY] = is_large(body)
    parser: BodyParser = request.app.state.parser
    return await parser.parse(body)


async def checked(request: Request, check: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return `check(*arguments)`, called in a thread if the request's body is large. Raises what it raises."""
    if request.scope.get(HEAVY):
        return await run_in_threadpool(check, *arguments, **options)
    return check(*arguments, **options)


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Parse bodies until the parent closes the socket."""
    help_out(channel, incoming, _answer)


def _answer(body: bytes) -> Any:
    try:
        value = parse_value(body)
        _check_cost(value)
    except (ApiError, PliantError) as error:
        return error
    return value


def _check_cost(value: Any) -> None:
    """Raise `ApiError` (413) for a value of too many parts."""
    cost, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, list | dict):
            cost += CONTAINER + len(item)
            left += item.values() if isinstance(item, dict) else item
        if cost > MAX_COST:
            raise ApiError(413, "body_too_large", "body has too many values", "body")
