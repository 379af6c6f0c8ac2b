"""What every answer goes through: it gets an x-request-id, and an unknown path an error in the shape of its interface."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.bodies import shorten
from pliant.serving.request_context import REQUEST_ID, REQUEST_KEY

HEADER = b"x-request-id"
KEY_HEADER = b"x-pliant-key"
MAX_CHARACTERS = 128
PRINTABLE = frozenset(range(0x20, 0x7F))

PLAIN = b"text/plain"


class RequestIdMiddleware:
    """Answers with the request's x-request-id.

    A request without one gets a new one, and so does a request with several, or with one of more than `MAX_CHARACTERS`
    characters or others than printable ones of ASCII.

    Requests with the same x-pliant-key stay with one release while another one is tried; without it each goes by chance.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = request_id(scope["headers"])
        keys = (value.decode("latin-1") for name, value in scope["headers"] if name == KEY_HEADER)
        REQUEST_KEY.set(next(keys, ""))
        REQUEST_ID.set(id.decode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [header for header in message.get("headers", ()) if header[0].lower() != HEADER]
                message = {**message, "headers": [*others, (HEADER, id)]}
            await send(message)

        await self._app(scope, receive, send_with_id)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id that a request's headers hold, if it can be an answer's; else a new one of 32 characters."""
    ids = [value for name, value in headers if name == HEADER]
    if len(ids) == 1 and 0 < len(ids[0]) <= MAX_CHARACTERS and PRINTABLE.issuperset(ids[0]):
        return ids[0]
    return uuid4().hex.encode()


class UnknownPathMiddleware:
    """Replaces a 404 in plain text, which no route of a service gives, by an error in the shape of the path.

    BentoML mounts the app by a pattern that no path with a line break fits, so the app's own routes cannot answer all.

    `state` has the service's `shape_of`, by path, and its endpoint, which counts the error.
    """

    def __init__(self, app: ASGIApp, state: State) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_unknown = False

        async def send_unless_unknown(message: Message) -> None:
            nonlocal is_unknown
            if message["type"] == "http.response.start" and message["status"] == 404:
                is_unknown = any(
                    name == b"content-type" and kind.startswith(PLAIN) for name, kind in message["headers"]
                )
            if not is_unknown:
                await send(message)

        await self._app(scope, receive, send_unless_unknown)
        if is_unknown:
            error = ApiError(404, "http", f"{scope['method']} {shorten(scope['path'])}: there is no such path")
            self._state.endpoint.metrics.errored(error.code)
            await self._state.shape_of(scope["path"])(error)(scope, receive, send)
