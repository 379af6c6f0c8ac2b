"""Parses JSON bodies: small ones at once, large ones in a process, since parsing holds the interpreter's lock.

While a body of some megabytes is parsed in the service's process nothing else runs there, whichever thread does it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import IO, Any, ParamSpec, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pliant.errors import PliantError, WorkerError
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import parse_value
from pliant.serving.workers.helper_process import HelperProcess, help_out

INLINE_BYTES = 512 * 1024  # of a body of long texts that is parsed at once: about a millisecond
INLINE_VALUES = 2_000  # of a body that is parsed at once: about a millisecond
MAX_COST = 200_000  # of the values of a body: 1 each, a list or an object CONTAINER
CONTAINER = 20
SECONDS = 5.0  # that parsing may take
HEAVY = "pliant.heavy"
"""Key of an ASGI scope: whether the body was large, so that checking its fields takes long too."""

P = ParamSpec("P")
T = TypeVar("T")


class BodyParser:
    """Parses the bodies of one service."""

    def __init__(self) -> None:
        self._process = HelperProcess("pliant.serving.http.large_body:main")

    async def parse(self, body: Sequence[bytes]) -> Any:
        """Return the JSON value of a body in pieces.

        Raises as `parse_value`, and `ApiError` for too many values or too much time.
        """
        if not is_large(body):
            return parse_value(b"".join(body))
        try:
            return await self._process.call(SECONDS, body)
        except TimeoutError:
            raise ApiError(413, "body_too_large", f"body takes more than {SECONDS:g} s to parse", "body") from None
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
