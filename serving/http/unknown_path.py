"""Answers paths without a route as an error of the interface that they belong to, instead of as a plain text.

BentoML mounts the app by a pattern that no path with a line break fits, so the app's own routes cannot answer all of them.
"""

from __future__ import annotations

from starlette.datastructures import State
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.json_body import shorten

PLAIN = b"text/plain"


class UnknownPathMiddleware:
    """Replaces a 404 in plain text, which no route of a service gives, by an error in the shape of the path.

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
