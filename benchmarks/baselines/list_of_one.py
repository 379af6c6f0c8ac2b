"""ASGI middleware: one question travels as a list of one, as BentoML's batches want it. Knows nothing of BentoML."""

from __future__ import annotations

from collections.abc import Iterable
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
        chunks, more = [BEFORE], True
        while more:
            message = await receive()
            chunks.append(message.get("body", b""))
            more = message.get("more_body", False)
        left = [b"".join([*chunks, AFTER])]
        answered: list[bytes] = []
        starts: list[Message] = []

        async def give() -> Message:
            return {"type": "http.request", "body": left.pop(), "more_body": False} if left else await receive()

        async def take(message: Message) -> None:
            """Hold the start back until the body is whole. Only answers that went well are lists."""
            if message["type"] == "http.response.start":
                starts.append(message)
                return
            answered.append(message.get("body", b""))
            if not message.get("more_body", False):
                start, body = starts[0], b"".join(answered)
                body = body[1:-1] if start["status"] == HTTPStatus.OK else body
                await send({**start, "headers": _measured(start["headers"], body)})
                await send({"type": "http.response.body", "body": body})

        await self._app({**scope, "headers": _measured(scope["headers"], left[0])}, give, take)


def _measured(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return [*kept, (b"content-length", str(len(body)).encode())]
