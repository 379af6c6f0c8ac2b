"""The door in front of the app: uvicorn's HTTP protocol with limits of what one connection may cost, and what all of a
service's connections share: limits, the load of the loop, and the answers to who is turned away.

The parser hands over a header only when it is complete, so bytes are counted as they come too. Trailers are refused: no
client of these services sends them. WebSockets are switched off: no route has any.

A whole request that the loop has no time for is recognised without parsing it, for a fortieth of what parsing and answering
one by one cost. Only what any client library sends is recognised; all else is left to the parser. As these bytes are exactly
one request by its one `content-length`, a proxy in between sees the same end of it.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache, partial
from http import HTTPStatus
from math import ceil
from typing import Any

import httptools
import uvicorn.config
from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pliant.serving.client import ANYBODY, Client
from pliant.serving.http.api_errors import ApiError, ErrorShape
from pliant.serving.http.app import ARRIVED, request_id
from pliant.serving.http.app import ID_HEADER as REQUEST_ID
from pliant.serving.http.door.connections import Connections, DoorLimits, Stage
from pliant.serving.http.door.load import LoopLoad, MeasuredLoop, Turns
from pliant.serving.request_context import FrontDoor, begin_way_back

LIMITS = DoorLimits()
Headers = Iterable[tuple[bytes, bytes]]
Judge = Callable[[Mapping[str, Any]], Client | None]
SENDER = "pliant.sender"  # in the scope of a request: the client as far as the door knows it
READ_BYTES = 256 * 1024  # at a time
SWEEP = 1.0  # seconds between two sweeps
NOFILE = 65_536  # open files, at most, that a service asks its system for
ADDED = 8  # bytes of chunk lines that each byte of a chunked body may bring, besides `head_bytes`
PROGRESS = 512  # bytes of a request that are progress: who sends one at a time has come to a stand
HELD_BYTES = 65_536  # of a body that are read before the app starts
SHED_HEAD_BYTES = 2048  # of a request that is turned away without parsing; a longer head is parsed
MOST_PARTING = 256  # connections at a time that are closed gently
PARTING_BYTES, PARTING_SECONDS = 1024 * 1024, 1.0  # that such a client may still send, and has to read its answer

LAST_RECEIVED = slice(52, 56)  # of Linux's struct tcp_info: tcpi_last_data_recv, in milliseconds
PARSED = (b"transfer-encoding", b"expect:", b"upgrade:")  # in a head that is left to the parser
LENGTH, CONNECTION, KEPT = b"\r\ncontent-length: ", b"\r\nconnection:", b"\r\nconnection: keep-alive\r\n"
DIGITS = 12
HEADS = 256  # that are remembered: a client repeats its own, byte for byte, with bodies of one length


class Door:
    """Opened once by a service, which is its only one. `shape_of` gives the error shape of a path."""

    def __init__(
        self, shape_of: Callable[[str], ErrorShape], is_sheddable: Callable[[str], bool], limits: DoorLimits = LIMITS
    ) -> None:
        self.shape_of, self.is_sheddable, self.limits = shape_of, is_sheddable, limits
        self.load, self.connections, self.turns = LoopLoad(), Connections(limits), Turns()
        self.buffer = memoryview(bytearray(READ_BYTES))  # a connection reads into it, and takes its bytes out at once
        self.parting = 0  # connections whose clients are given time to read why they were turned away
        self.keyed = False  # whether senders are told apart by their keys
        self._count: Callable[[str, int], None] = lambda _code, _number: None
        self._front = FrontDoor()
        self._judge: Judge = lambda _scope: None
        self._shed: dict[ErrorShape, bytes] = {}  # answers by shape, until the next sweep
        self._uncounted = 0  # of them
        self._under_way: dict[asyncio.Task[Any] | None, str] = {}  # tenants, until the answers of their requests begin

    def open(self, count: Callable[[str, int], None], front: FrontDoor, judge: Judge = lambda _scope: None) -> None:
        """Begin to sweep, on the running loop, and to `count` errors by code and number; allow as many files as possible.

        `front` learns what answers take to be written; `judge` returns who sends a request, by its scope, if it knows, and
        raises `ApiError` if nobody may.
        """
        self._count, self._front, self._judge = count, front, judge
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        files = NOFILE if hard == resource.RLIM_INFINITY else min(NOFILE, hard)
        if soft != resource.RLIM_INFINITY and soft < files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        self.connections.most = min(self.limits.connections, files // 2)  # others need files, too
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
                self.load.started()
                begin()
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


class LimitedProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """One connection.

    All read into one buffer: asyncio would take 256 KiB anew for each read, which costs more than reading itself.
    """

    def __init__(self, door: Door, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ws_protocol_class = None
        self.timeout_keep_alive = ceil(door.limits.idle_seconds)  # as the sweep, in place of uvicorn's 5 s
        self._door, self._limits = door, door.limits
        self._begun = 0  # requests
        self._in_message = self._in_head = False
        self._head, self._lines = 0, 0  # bytes and headers of the open head
        self._raw, self._content = 0, 0  # bytes of the open body, as sent and without chunk lines
        self._come = 0  # bytes of the open message since it last made progress
        self._held: tuple[RequestResponseCycle, Any] | None = None  # a request whose app starts with its body
        self._task: asyncio.Task[None] | None = None  # of the present request, if it ends with its client
        self._lost = False
        self._sender: Client | None = None  # of the latest request
        self._parting: asyncio.TimerHandle | None = None  # the end of it
        self._discarded = 0  # bytes that came meanwhile

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._socket = transport.get_extra_info("socket")
        if not self._door.connections.enter(self, self.loop.time()):
            self._refuse(ApiError(503, "busy", f"there are {self._door.connections.most} connections already"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.leave(self)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()  # after a reset too: else it would keep all of this for seconds
        self._lost, self._held = True, None
        if self._parting is not None:
            self._parting.cancel()
            self._door.parting -= 1
        if self._task is not None:
            self._task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._door.buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._door.buffer[:nbytes]
        if self._parting is not None:
            self._discarded += nbytes
            if self._discarded > PARTING_BYTES:
                self.transport.close()
        elif not self._door.load.pressed or not self._shed(data):
            self.data_received(bytes(data))

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        begun, was_in_head = self._begun, self._in_head
        try:
            self.parser.feed_data(data)
            if self._begun == begun:  # else this piece holds the end of one message and another's begin
                self._count(len(data), was_in_head)
            if self._in_message:
                self._come += len(data)
                if self._come >= PROGRESS:
                    self._come = 0
                    self._door.connections.progressed(self, self.loop.time())
        except ApiError as error:
            self._refuse(error)
        except httptools.HttpParserUpgrade:
            pass  # answered as a request without an upgrade
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ApiError) else ApiError(400, "malformed", "this is not HTTP/1.1"))

    def _count(self, size: int, was_in_head: bool) -> None:
        """Count a piece of a message. Raises `ApiError` if it is beyond the limits."""
        if was_in_head:
            self._head += size
            if self._in_head and self._head > self._limits.head_bytes:
                raise self._head_too_large()
        else:
            self._raw += size
            if self._raw - self._content > self._limits.head_bytes + ADDED * self._content:
                raise ApiError(400, "malformed", "the body has more chunk lines than content")

    def _head_too_large(self) -> ApiError:
        limit = self._limits.head_bytes
        return ApiError(431, "head_too_large", f"request line and headers must be at most {limit} bytes together")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        if len(self.pipeline) >= self._limits.pipelined:
            raise ApiError(429, "busy", f"more than {self._limits.pipelined} requests wait on this connection")
        self._in_message = self._in_head = True
        self._head, self._lines, self._come = 0, 0, 0
        ago = received_ago(self._socket)  # when it came; the earliest time if nobody knows
        arrived = self._door.load.earliest if ago is None else self.loop.time() - ago
        self.scope[ARRIVED] = arrived  # type: ignore[literal-required]
        if self._is_free():
            self._door.connections.move(self, Stage.HEAD, self.loop.time())

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            raise ApiError(400, "malformed", "trailers are not accepted")
        self._lines += 1
        if self._lines > self._limits.headers:
            raise ApiError(431, "head_too_large", f"there are more than {self._limits.headers} headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > self._limits.head_bytes:
            raise self._head_too_large()
        self._in_head, self._raw, self._content = False, 0, 0
        if self._is_free():
            self._door.connections.move(self, Stage.BODY, self.loop.time())
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._content += len(body)
        super().on_body(body)
        if self._held is not None and len(self.cycle.body) >= HELD_BYTES:
            self._release()

    def on_message_complete(self) -> None:
        self._in_message = False
        if self._door.connections.stage(self) is Stage.BODY:
            self._door.connections.move(self, Stage.ANSWER, self.loop.time())
        super().on_message_complete()
        self._release()

    def on_response_complete(self) -> None:
        self._task = None
        if not self.transport.is_closing():
            waiting = Stage.BODY if self.cycle.more_body else Stage.ANSWER  # of requests that came meanwhile
            stage = waiting if self.pipeline else Stage.IDLE
            self._door.connections.move(self, stage, self.loop.time())
        super().on_response_complete()
        if not self.transport.is_closing() and stage is Stage.IDLE:
            self._door.connections.answered(self)

    def send_400_response(self, msg: str) -> None:
        self._refuse(ApiError(400, "malformed", msg))

    def expire(self, stage: Stage) -> None:
        """Close the connection, which has been in this stage for too long, or is one too many."""
        if stage is Stage.BODY or (stage is Stage.HEAD and self._in_head):
            self._refuse(ApiError(408, "too_slow", "the rest of the request did not come in time"))
        else:
            self.transport.close()

    def unread(self) -> int:
        """Return the bytes that the client has not taken yet."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection without sending what is left."""
        self.transport.abort()

    def _is_free(self) -> bool:
        """Whether no earlier request on this connection waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        path = cycle.scope["path"]
        if cycle.scope["method"] != "POST" or not self._door.is_sheddable(path):
            super()._start_asgi_task(cycle, app)
        elif (error := self._door.admit(cycle.scope)) is not None:  # type: ignore[arg-type]
            self._turn_away(cycle, path, error)
        elif cycle.more_body and not cycle.waiting_for_100_continue:
            self._held = cycle, app  # a body that never comes costs no task
        else:
            self._begin(cycle, app)

    def _release(self) -> None:
        """Start the app for a request whose body is here, or as much of it as is read before the app takes it."""
        if self._held is not None:
            (cycle, app), self._held = self._held, None
            age = self.loop.time() - cycle.scope[ARRIVED]  # type: ignore[literal-required]
            tenant = cycle.scope[SENDER].tenant  # type: ignore[literal-required]
            if self._door.is_full(age, tenant):  # other than when its head came
                self._turn_away(cycle, cycle.scope["path"], self._door.busy())
            else:
                self._begin(cycle, app)

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the app when it is the turn of the request's sender."""
        sender: Client = cycle.scope[SENDER]  # type: ignore[literal-required]
        self._sender = sender
        self._door.connections.own(self, sender.tenant)
        self._door.start(partial(self._start, cycle, app, sender), sender)

    def _start(self, cycle: RequestResponseCycle, app: Any, sender: Client) -> None:
        if not self._lost:
            self._task = self.loop.create_task(self._run(cycle, app))
            self._task.add_done_callback(self.tasks.discard)
            self.tasks.add(self._task)
            self._door.begun(self._task, sender)

    async def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Run the app for a request whose client may leave: the app is cancelled then, which is no error.

        The way of the answer back is measured, but not of one that waits for its reader.
        """
        way_back, task = begin_way_back(), asyncio.current_task()

        async def until_left(scope: Any, receive: Any, send: Any) -> None:
            async def write(message: Any) -> None:
                if self.flow.write_paused:
                    way_back.leave_out()
                await send(message)
                if message["type"] == "http.response.body":
                    self._door.left(task)
                    if (seconds := way_back.written()) is not None:
                        self._door.answered(seconds)

            try:
                await app(scope, receive, write)
            except asyncio.CancelledError:
                if not self._lost:
                    raise

        await cycle.run_asgi(until_left)

    def _shed(self, data: memoryview) -> bool:
        """Turn away a whole request, without parsing it, if the loop has no time; return whether it was turned away."""
        if self._in_message or not self._is_free() or (self._sender is None and self._door.keyed):  # whose is it?
            return False
        tenant = self._sender.tenant if self._sender else ""
        if not (self._door.is_full(0.0, tenant) or self._door.is_full(self._age(), tenant)):  # the age is a system call
            return False
        path = path_of_post(data, min(SHED_HEAD_BYTES, self._limits.head_bytes))
        answer = None if path is None else self._door.shed(path)
        if answer is None:
            return False
        self._unset_keepalive_if_required()  # from now on the sweep closes the connection if it idles
        self.transport.write(answer)
        self._door.connections.move(self, Stage.IDLE, self.loop.time())
        return True

    def _age(self) -> float:
        """Return for how many seconds what is read now has been at the socket; 0 if nobody knows."""
        return received_ago(self._socket) or 0.0

    def _turn_away(self, cycle: RequestResponseCycle, path: str, error: ApiError) -> None:
        """Answer with an error at once, before the body is read."""
        self.transport.write(self._door.refusal(error, path, not cycle.keep_alive, self.scope["headers"]))
        cycle.response_started = cycle.response_complete = True
        if cycle.keep_alive:
            self.on_response_complete()
        else:
            self._part()

    def _refuse(self, error: ApiError) -> None:
        """Answer with an error, unless an answer has begun, and close the connection."""
        if self.transport.is_closing() or self._parting is not None:
            return
        if self._is_free() or not self.cycle.response_started:
            scope: Mapping[str, Any] = self.scope if self._begun else {}
            self.transport.write(self._door.refusal(error, scope.get("path", ""), True, scope.get("headers", ())))
        if self.cycle is not None:
            self.cycle.disconnected = True  # what the app still answers is not sent
        self._part()

    def _part(self) -> None:
        """Close the connection once its client has read the answer, or has had a second for it.

        If bytes of the client are unread at the close its system is told of a lost connection, and throws away the answer
        (RFC 9112, section 9.6). So they are read, and thrown away, up to a limit.
        """
        self._door.connections.leave(self)
        answering = bool(self.pipeline)  # an earlier request, whose app may still write
        if answering or self._door.parting >= MOST_PARTING or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self._door.parting += 1
        self._parting = self.loop.call_later(PARTING_SECONDS, self.transport.close)
        self.transport.write_eof()
        self.flow.resume_reading()


def received_ago(sock: Any) -> float | None:
    """Return for how many seconds the newest bytes of a TCP socket have been here; None where the system does not say.

    The system counts in ticks of 1 to 10 ms.
    """
    if sys.platform != "linux":
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, LAST_RECEIVED.stop)
    except OSError:  # no TCP, or closed
        return None
    return int.from_bytes(info[LAST_RECEIVED], sys.byteorder) / 1000


def install(door: Door) -> None:
    """Make uvicorn use this door for every server of this process that is configured from now on."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = partial(LimitedProtocol, door)  # type: ignore[assignment]
    loop = lambda use_subprocess=False: partial(MeasuredLoop, door.load)  # noqa: E731, ARG005
    uvicorn.config.LOOP_FACTORIES["auto"] = loop  # type: ignore[assignment]


def path_of_post(data: bytes | memoryview, most_head: int) -> str | None:
    """Return the path of a POST on a connection that is kept, if `data` is just that; None if it is anything else.

    `most_head`: the bytes of its head, at most.
    """
    begin = bytes(data[:most_head])
    end = begin.find(b"\r\n\r\n")
    if end < 0:
        return None
    path, length = _path_and_length(begin[: end + 2])
    return path if len(data) == end + 4 + length else None


@lru_cache(HEADS)
def _path_and_length(head: bytes) -> tuple[str | None, int]:
    """Return the path of a POST with this head, and the bytes of its body; no path if it is anything else."""
    lower, line = head.lower(), head[: head.find(b"\r\n")].split(b" ")
    before, _, rest = lower.partition(LENGTH)
    length = rest[: rest.find(b"\r\n")]
    is_usual = (
        head.startswith(b"POST /")
        and not any(word in lower for word in PARSED)
        and b"content-length" not in before
        and b"content-length" not in rest
        and length.isdigit()
        and len(length) <= DIGITS
        and len(line) == 3
        and line[2] == b"HTTP/1.1"
        and line[1].isascii()
        and b"%" not in line[1]
        and (CONNECTION not in lower or KEPT in lower)
    )
    return (line[1].partition(b"?")[0].decode(), int(length)) if is_usual else (None, 0)
