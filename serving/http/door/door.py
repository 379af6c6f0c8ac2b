"""What all connections of a service share: limits, the load of the loop, and the answers to who is turned away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from serving.http.api_errors import ApiError, ErrorShape
from serving.http.door.connections import Connections
from serving.http.door.limits import DoorLimits, most_connections, raise_open_files
from serving.http.door.load import LoopLoad

LIMITS = DoorLimits()
Judge = Callable[[Mapping[str, Any]], object]
SWEEP = 1.0  # seconds between two sweeps


class Door:
    """Opened once by a service, which is its only one. `shape_of` gives the error shape of a path."""

    def __init__(
        self,
        shape_of: Callable[[str], ErrorShape],
        is_sheddable: Callable[[str], bool],
        limits: DoorLimits = LIMITS,
    ) -> None:
        self.shape_of, self.is_sheddable, self.limits = shape_of, is_sheddable, limits
        self.load, self.connections = LoopLoad(), Connections(limits)
        self.parting = 0  # connections whose clients are given time to read why they were turned away
        self._count: Callable[[str], None] = lambda _code: None
        self._usual_deadline: Callable[[], float] = lambda: self.load.deadline
        self._judge: Judge = lambda _scope: None

    def open(
        self, count: Callable[[str], None], usual_deadline: Callable[[], float], judge: Judge = lambda _scope: None
    ) -> None:
        """Begin to sweep, on the running loop, and to `count` the errors by code; allow as many files as possible.

        `usual_deadline` gives the seconds in which requests usually must be answered; `judge` raises `ApiError` for a
        request that nobody may send, by its scope.
        """
        self._count, self._usual_deadline, self._judge = count, usual_deadline, judge
        self.connections.most = most_connections(self.limits.connections, raise_open_files())
        self._sweep(asyncio.get_running_loop())

    def admit(self, scope: Mapping[str, Any]) -> ApiError | None:
        """Return why a request is turned away before its body is read; None if it is taken in.

        Who has no key is judged first, and so takes no place from others.
        """
        try:
            self._judge(scope)
        except ApiError as error:
            return error
        if self.load.take():
            return None
        return ApiError(503, "busy", "the service is busy; try again later", retry_after=self.load.retry_after)

    def refusal(self, error: ApiError, path: str, close: bool) -> bytes:
        """Return the whole answer to who is turned away, in the shape of the path, and count it."""
        self._count(error.code)
        response = self.shape_of(path)(error)
        headers = [*response.raw_headers, (b"connection", b"close")] if close else response.raw_headers
        head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        status = b"HTTP/1.1 %d %s\r\n" % (response.status_code, HTTPStatus(response.status_code).phrase.encode())
        return b"%s%s\r\n%s" % (status, head, bytes(response.body))

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.connections.sweep(loop.time())
        self.load.deadline = self._usual_deadline()
        loop.call_later(SWEEP, self._sweep, loop)
