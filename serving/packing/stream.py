"""Long answers, as one body or as server-sent events, which end early if the client disconnects or does not read.

In ASGI, `receive` reports that a client has disconnected; `send` waits while the connection's buffer is full because the
client does not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

logger = logging.getLogger("pliant.serving")

T = TypeVar("T")


class DisconnectedError(Exception):
    """The client has closed the connection."""


async def while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """Return the result of `work`. If the client disconnects, cancel it and raise `DisconnectedError`."""
    task = asyncio.ensure_future(work)
    disconnect = asyncio.create_task(until_disconnect(receive))
    try:
        await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise DisconnectedError
        return task.result()
    finally:
        for waiting in (task, disconnect):
            waiting.cancel()
        await asyncio.gather(task, disconnect, return_exceptions=True)


async def until_disconnect(receive: Receive) -> None:
    """Wait until the client disconnects. Called after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. `done` is called at the end in any case.

    `limit`: seconds in which the client must read each event, or the stream ends.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        done: Callable[[], None],
        limit: float,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._events, self._done, self._limit = events, done, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await while_connected(receive, self._send(send))
        except DisconnectedError:
            pass
        except TimeoutError:
            logger.warning("a client did not read its stream for %g s; its output is cancelled", self._limit)
        finally:
            self._done()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._within(send(start))
        async for event in self._events:
            await self._within(send({"type": "http.response.body", "body": event, "more_body": True}))
        await self._within(send({"type": "http.response.body", "body": b"", "more_body": False}))

    async def _within(self, sent: Awaitable[Any]) -> None:
        async with asyncio.timeout(self._limit):
            with suppress(OSError):  # the client has disconnected, which `receive` reports too
                await sent
