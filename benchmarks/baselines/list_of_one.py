"""ASGI middleware: one question travels as a list of one, as BentoML's batches want it. Knows nothing of BentoML."""

from __future__ import annotations

from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.benchmarks.baselines.model import PATH

BEFORE, AFTER = b'{"questions":[', b"]}"


class ListOfOne:
    """ASGI middleware of the predict path: `{...}` comes in as a list of one question, `[{...}]` goes out as `{...}`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers.append((b"content-length", str(len(body)).encode()))
        await self._app({**scope, "headers": headers}, _whole(body, receive), _unwrapping(send))


async def _body(receive: Receive) -> bytes:
    chunks, more = [BEFORE], True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join([*chunks, AFTER])


def _whole(body: bytes, receive: Receive) -> Receive:
    left = [body]

    async def give() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        return await receive()

    return give


def _unwrapping(send: Send) -> Send:
    """Return a `send` that holds the start back until the body is whole. Only answers that went well are lists."""
    starts: list[Message] = []
    chunks: list[bytes] = []

    async def give(message: Message) -> None:
        if message["type"] == "http.response.start":
            starts.append(message)
            return
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            start, body = starts[0], b"".join(chunks)
            body = body[1:-1] if start["status"] == HTTPStatus.OK else body
            headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
            await send({"type": "http.response.body", "body": body})

    return give
