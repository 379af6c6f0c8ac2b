"""Answers that take their time: as one body or as server-sent events, given up where the client has gone or does not read.

Knows ASGI; knows of what is sent only that it comes in pieces. A server tells that a client has gone by `receive`, and
that it does not read by `send`, which waits once the server's buffer of that connection is full.
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


class GoneError(Exception):
    """The client has closed the connection."""


async def while_there(receive: Receive, work: Awaitable[T]) -> T:
    """The work's result. Raises `GoneError`, and ends the work, as soon as the client has gone."""
    doing = asyncio.ensure_future(work)
    leaving = asyncio.create_task(until_gone(receive))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise GoneError
        return doing.result()
    finally:
        for task in (doing, leaving):
            task.cancel()
        await asyncio.gather(doing, leaving, return_exceptions=True)


async def until_gone(receive: Receive) -> None:
    """After the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Server-sent events. `done` is called at the end, however it comes; `limit`: seconds in which a piece must be taken."""

    media_type = "text/event-stream"

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        done: Callable[[], None],
        limit: float,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(None, 200, {"cache-control": "no-cache", "x-accel-buffering": "no", **headers})
        del self.headers["content-length"]
        self._pieces, self._done, self._limit = pieces, done, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            await while_there(receive, self._send(send))
        except GoneError:
            pass
        except TimeoutError:
            logger.warning("a stream was not read for %g s; its output is cancelled", self._limit)
        finally:
            self._done()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await self._within(send(start))
        async for piece in self._pieces:
            await self._within(send({"type": "http.response.body", "body": piece, "more_body": True}))
        await self._within(send({"type": "http.response.body", "body": b"", "more_body": False}))

    async def _within(self, sent: Awaitable[Any]) -> None:
        async with asyncio.timeout(self._limit):
            with suppress(OSError):  # the client has gone: `receive` says so, too
                await sent
