"""uvicorn's HTTP protocol with limits of what one connection may cost.

The parser hands over a header only when it is complete, so bytes are counted as they come too. Trailers are refused: no
client of these services sends them. WebSockets are switched off: no route has any.

A whole request that the loop has no time for is recognised without parsing it, for a fortieth of what parsing and answering
one by one cost. Only what any client library sends is recognised; all else is left to the parser. As these bytes are exactly
one request by its one `content-length`, a proxy in between sees the same end of it.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import ceil
from typing import Any

import httptools
import uvicorn.config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pliant.serving.client import Client
from pliant.serving.http.api_errors import ApiError
from pliant.serving.http.app import ARRIVED
from pliant.serving.http.door.connections import Stage
from pliant.serving.http.door.door import SENDER, Door
from pliant.serving.http.door.load import LoopLoad, MeasuredLoop
from pliant.serving.request_context import begin_way_back

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
            self._discard(nbytes)
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
                self._note_progress(len(data))
        except ApiError as error:
            self._refuse(error)
        except httptools.HttpParserUpgrade:
            pass  # answered as a request without an upgrade
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ApiError) else ApiError(400, "malformed", "this is not HTTP/1.1"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        if len(self.pipeline) >= self._limits.pipelined:
            raise ApiError(429, "busy", f"more than {self._limits.pipelined} requests wait on this connection")
        self._in_message = self._in_head = True
        self._head, self._lines, self._come = 0, 0, 0
        self.scope[ARRIVED] = self._arrival()  # type: ignore[literal-required]
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
            stage = self._next_stage()
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

    def _begin(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the app when it is the turn of the request's sender."""
        sender: Client = cycle.scope[SENDER]  # type: ignore[literal-required]
        self._sender = sender
        self._door.connections.own(self, sender.tenant)
        self._door.start(partial(self._start, cycle, app, sender), sender)

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

    def _start(self, cycle: RequestResponseCycle, app: Any, sender: Client) -> None:
        if self._lost:
            return
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

    def _discard(self, size: int) -> None:
        self._discarded += size
        if self._discarded > PARTING_BYTES:
            self.transport.close()

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

    def _note_progress(self, size: int) -> None:
        self._come += size
        if self._come >= PROGRESS:
            self._come = 0
            self._door.connections.progressed(self, self.loop.time())

    def _head_too_large(self) -> ApiError:
        limit = self._limits.head_bytes
        return ApiError(431, "head_too_large", f"request line and headers must be at most {limit} bytes together")

    def _arrival(self) -> float:
        """Return when the present message came to the socket, on the loop's clock; the earliest time if nobody knows."""
        ago = received_ago(self._socket)
        return self._door.load.earliest if ago is None else self.loop.time() - ago

    def _age(self) -> float:
        """Return for how many seconds what is read now has been at the socket; 0 if nobody knows."""
        return received_ago(self._socket) or 0.0

    def _is_free(self) -> bool:
        """Whether no earlier request on this connection waits for its answer."""
        return self.cycle is None or self.cycle.response_complete

    def _next_stage(self) -> Stage:
        """Return the stage after an answer: requests that came meanwhile are next."""
        if not self.pipeline:
            return Stage.IDLE
        return Stage.BODY if self.cycle.more_body else Stage.ANSWER


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
    uvicorn.config.LOOP_FACTORIES["auto"] = partial(_loop_factory, door.load)  # type: ignore[assignment]


def _loop_factory(load: LoopLoad, use_subprocess: bool = False) -> Callable[[], asyncio.AbstractEventLoop]:
    del use_subprocess
    return partial(MeasuredLoop, load)


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
    lower = head.lower()
    if not head.startswith(b"POST /") or any(word in lower for word in PARSED):
        return None, 0
    before, _, rest = lower.partition(LENGTH)
    length = rest[: rest.find(b"\r\n")]
    if b"content-length" in before or b"content-length" in rest or not length.isdigit() or len(length) > DIGITS:
        return None, 0
    line = head[: head.find(b"\r\n")].split(b" ")
    if len(line) != 3 or line[2] != b"HTTP/1.1" or not line[1].isascii() or b"%" in line[1]:
        return None, 0
    if CONNECTION in lower and KEPT not in lower:
        return None, 0
    return line[1].partition(b"?")[0].decode(), int(length)
