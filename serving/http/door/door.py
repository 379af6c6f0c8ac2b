"""What all connections of a service share: limits, the load of the loop, and the answers to who is turned away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.api_errors import ApiError, ErrorShape
from pliant.serving.http.app import ARRIVED
from pliant.serving.http.door.connections import Connections, DoorLimits, raise_open_files
from pliant.serving.http.door.load import LoopLoad, Turns
from pliant.serving.http.middleware import HEADER as REQUEST_ID
from pliant.serving.http.middleware import request_id
from pliant.serving.request_context import FrontDoor

LIMITS = DoorLimits()
Headers = Iterable[tuple[bytes, bytes]]
Judge = Callable[[Mapping[str, Any]], Client | None]
SENDER = "pliant.sender"  # in the scope of a request: the client as far as the door knows it
READ_BYTES = 256 * 1024  # at a time
SWEEP = 1.0  # seconds between two sweeps


class Door:
    """Opened once by a service, which is its only one. `shape_of` gives the error shape of a path."""

    def __init__(
        self, shape_of: Callable[[str], ErrorShape], is_sheddable: Callable[[str], bool], limits: DoorLimits = LIMITS
    ) -> None:
        self.shape_of, self.is_sheddable, self.limits = shape_of, is_sheddable, limits
        self.load, self.connections = LoopLoad(), Connections(limits)
        self.buffer = memoryview(bytearray(READ_BYTES))  # a connection reads into it, and takes its bytes out at once
        self.parting = 0  # connections whose clients are given time to read why they were turned away
        self._count: Callable[[str, int], None] = lambda _code, _number: None
        self._front = FrontDoor()
        self._judge: Judge = lambda _scope: None
        self._shed: dict[ErrorShape, bytes] = {}  # answers by shape, until the next sweep
        self._uncounted = 0  # of them
        self.turns = Turns()
        self.keyed = False  # whether senders are told apart by their keys
        self._under_way: dict[asyncio.Task[Any] | None, str] = {}  # tenants, until the answers of their requests begin

    def open(self, count: Callable[[str, int], None], front: FrontDoor, judge: Judge = lambda _scope: None) -> None:
        """Begin to sweep, on the running loop, and to `count` errors by code and number; allow as many files as possible.

        `front` learns what answers take to be written; `judge` returns who sends a request, by its scope, if it knows, and
        raises `ApiError` if nobody may.
        """
        self._count, self._front, self._judge = count, front, judge
        self.connections.most = min(self.limits.connections, raise_open_files() // 2)  # others need files, too
        self._sweep(asyncio.get_running_loop())

    def admit(self, scope: MutableMapping[str, Any]) -> ApiError | None:
        """Return why a request is turned away before its body is read; None if it is taken in, its `SENDER` noted.

        Who has no key is judged first, and so takes no place from others.
        """
        try:
            sender = scope[SENDER] = self._judge(scope) or ANYBODY
            self.keyed = bool(sender.key)
        except ApiError as error:
            return error
        age = asyncio.get_running_loop().time() - scope[ARRIVED]
        return self.busy() if self.is_full(age, sender.tenant) else None

    def is_full(self, age: float, tenant: str) -> bool:
        """Whether a tenant's request that came `age` seconds ago is turned away for want of time, also of its way back."""
        if not self.load.pressed:
            return False
        age += self._front.way_back(asyncio.get_running_loop().time())
        waiting, under_way = self.turns.before(tenant)
        return self.load.is_full(waiting, age, under_way)

    def answered(self, seconds: float) -> None:
        """Note that an answer was written so many seconds after it was decided."""
        self._front.answered(seconds, asyncio.get_running_loop().time())

    def begun(self, task: asyncio.Task[Any], sender: Client) -> None:
        """Count the task of a request that is started as under way, until it is `left`."""
        self._under_way[task] = sender.tenant
        self.turns.begun(sender.tenant)
        task.add_done_callback(self.left)

    def left(self, task: asyncio.Task[Any] | None) -> None:
        """Note that a request's answer has begun, or that it has none."""
        tenant = self._under_way.pop(task, None)
        if tenant is not None:
            self.turns.ended(tenant)

    def start(self, begin: Callable[[], None], sender: Client = ANYBODY) -> None:
        """Call `begin`, which starts a request, now or as soon as it is this request's turn."""
        if not self.turns:
            if not self.load.saturated:
                self._begin(begin)
                return
            asyncio.get_running_loop().call_soon(self._start_some)
        self.turns.wait(begin, sender.tenant, sender.weight)

    def _start_some(self) -> None:
        """Start those whose turn it is before the next look at the sockets, and the others after it."""
        loop = asyncio.get_running_loop()
        some = self.turns.take(self.load.at_once, self.load.cost, self.load.rests, loop.time())
        if self.turns:
            loop.call_soon(self._start_some)
        for begin in some:
            self._begin(begin)

    def _begin(self, begin: Callable[[], None]) -> None:
        self.load.started()
        begin()

    def shed(self, path: str) -> bytes | None:
        """Return the whole answer to a request that the loop has no time for, on a connection that is kept.

        None if this path is always taken in. The answer is encoded once between two sweeps, whatever paths a client thinks
        up, and counted with the next one, so that each request of a flood costs little.
        """
        if not self.is_sheddable(path):
            return None
        shape = self.shape_of(path)
        if shape not in self._shed:
            self._shed[shape] = _answer(shape(self.busy()), close=False)
        self._uncounted += 1
        return self._shed[shape]

    def busy(self) -> ApiError:
        """Return the error for a request that the loop has no time for."""
        return ApiError(503, "busy", "the service is busy; try again later", retry_after=self.load.retry_after)

    def refusal(self, error: ApiError, path: str, close: bool, headers: Headers = ()) -> bytes:
        """Return the whole answer to who is turned away, in the shape of the path, and count it.

        `headers`: those of the request that are known, for its id.
        """
        self._count(error.code, 1)
        response = self.shape_of(path)(error)
        response.raw_headers.append((REQUEST_ID, request_id(headers)))
        return _answer(response, close)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.connections.sweep(loop.time())
        self.load.deadline = self._front.usual_deadline
        self._shed.clear()
        if self._uncounted:
            self._count("busy", self._uncounted)
            self._uncounted = 0
        loop.call_later(SWEEP, self._sweep, loop)


def _answer(response: Response, close: bool) -> bytes:
    """Return the bytes of a response."""
    headers = [*response.raw_headers, (b"connection", b"close")] if close else response.raw_headers
    head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    status = b"HTTP/1.1 %d %s\r\n" % (response.status_code, HTTPStatus(response.status_code).phrase.encode())
    return b"%s%s\r\n%s" % (status, head, bytes(response.body))
