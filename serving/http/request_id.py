"""Gives every answer the header x-request-id: the one of the request, or a new one.

Requests with the same x-pliant-key stay with one release while another one is tried; without it each goes by chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.serving.request_context import set_request_id, set_request_key

HEADER = b"x-request-id"
KEY_HEADER = b"x-pliant-key"
MAX_CHARACTERS = 128
PRINTABLE = frozenset(range(0x20, 0x7F))


class RequestIdMiddleware:
    """Answers with the request's x-request-id.

    A request without one gets a new one, and so does a request with several, or with one of more than `MAX_CHARACTERS`
    characters or others than printable ones of ASCII.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = request_id(scope["headers"])
        set_request_key(_key(scope["headers"]))
        set_request_id(id.decode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [header for header in message.get("headers", ()) if header[0].lower() != HEADER]
                message = {**message, "headers": [*others, (HEADER, id)]}
            await send(message)

        await self._app(scope, receive, send_with_id)


def _key(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the key by which a client's requests stay with one release while another one is tried; empty without."""
    return next((value.decode("latin-1") for name, value in headers if name == KEY_HEADER), "")


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the id that a request's headers hold, if it can be an answer's; else a new one of 32 characters."""
    ids = [value for name, value in headers if name == HEADER]
    if len(ids) == 1 and 0 < len(ids[0]) <= MAX_CHARACTERS and PRINTABLE.issuperset(ids[0]):
        return ids[0]
    return uuid4().hex.encode()
