"""The process that owns a device: it builds a model, then runs what it is sent, one message at a time.

Started by workers.py by its file, with one end of a socket pair and a piece of shared memory as its only arguments. Until
its first message has told it the parent's import path it imports nothing but the standard library. It ignores SIGINT and
SIGTERM, which a terminal or BentoML's supervisor sends to the whole family: the parent decides when it ends, by closing the
socket, and a parent that dies closes it too. Messages are pickles: both ends are our own, and nobody else holds the socket.
Large arrays in them lie in the shared memory, until the next message comes.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import pickle
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import IO, Any, Protocol

HEADER = struct.Struct("!Q")  # bytes of the pickle that follows
FRAME = struct.Struct("!QI?")  # the same, how many arrays of it come apart, and whether in the shared memory
SIZE = "Q"  # bytes of each of those arrays
SHARED_BYTES = 64 * 1024  # arrays of less than this together follow the pickle through the socket


class Model(Protocol):
    """What runs on a device. Outputs come in the payloads' order; seconds are measured on the device."""

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]: ...

    def update(self, value: Any) -> None: ...

    def load(self, number: int) -> None:
        """Put model `number` in the place of the one that is loaded."""


Build = Callable[[], Model]
"""Loads a model and warms it up, in the device process; pickled by reference or as a frozen dataclass."""


def pack(message: object) -> bytes:
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


class Outbox:
    """The parent's end of the shared memory, which grows with the largest message. One message lies in it at a time."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("pliant")
        self._memory: mmap.mmap | None = None

    def pack(self, message: object) -> bytes:
        """What goes through the socket; where the arrays of `message` are large, they lie in the shared memory then."""
        apart: list[pickle.PickleBuffer] = []
        body = pickle.dumps(message, protocol=5, buffer_callback=apart.append)
        arrays = [buffer.raw() for buffer in apart]
        sizes = [array.nbytes for array in arrays]
        total = sum(sizes)
        shared = total >= SHARED_BYTES
        if shared:
            self._put(arrays, total)
        head = FRAME.pack(len(body), len(sizes), shared) + struct.pack(f"!{len(sizes)}{SIZE}", *sizes)
        return b"".join([head, body] if shared else [head, body, *arrays])

    def _put(self, arrays: Sequence[memoryview], total: int) -> None:
        if self._memory is None or len(self._memory) < total:
            os.ftruncate(self.fd, total)
            self._memory = mmap.mmap(self.fd, total)
        at = 0
        for array in arrays:
            self._memory[at : at + array.nbytes] = array
            at += array.nbytes

    def close(self) -> None:
        os.close(self.fd)


class Inbox:
    """The device process's end of both."""

    def __init__(self, incoming: IO[bytes], fd: int) -> None:
        self._incoming, self._fd = incoming, fd
        self._memory = memoryview(b"")

    def receive(self) -> tuple[bytes, list[memoryview]]:
        """A pickle and the arrays that belong to it. Raises `EOFError` where the parent has gone."""
        length, count, shared = FRAME.unpack(_read(self._incoming, FRAME.size))
        kind = f"!{count}{SIZE}"
        sizes = struct.unpack(kind, _read(self._incoming, struct.calcsize(kind)))
        body, total = _read(self._incoming, length), sum(sizes)
        arrays = self._shared(total) if shared else memoryview(bytearray(_read(self._incoming, total)))
        ends = list(accumulate(sizes))
        return body, [arrays[end - size : end] for size, end in zip(sizes, ends, strict=True)]

    def _shared(self, total: int) -> memoryview:
        if len(self._memory) < total:  # it has grown; what still refers to the old mapping keeps that
            self._memory = memoryview(mmap.mmap(self._fd, 0))
        return self._memory


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rb") as incoming:
        (length,) = HEADER.unpack(_read(incoming, HEADER.size))
        sys.path[:] = pickle.loads(_read(incoming, length))
        try:
            _serve(channel, Inbox(incoming, int(sys.argv[2])))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the parent closed the socket or died


class Device:
    """What the parent may call, one call at a time and all from one thread."""

    def __init__(self) -> None:
        self._model: Model | None = None

    def reply(self, body: bytes, arrays: Sequence[memoryview] = ()) -> tuple[bool, Any]:
        """Make a pickled call. Whether it went well, and what it gave or the sentence that says what went wrong."""
        try:
            verb, arguments = pickle.loads(body, buffers=arrays)
            return True, getattr(self, verb)(*arguments)
        except Exception as error:  # the boundary: the parent turns it into a WorkerError
            return False, _sentence(error)

    def build(self, build: Build) -> None:
        self._model = build()
        gc.collect()
        gc.freeze()  # a model's modules are many objects; no later collection shall walk them during a launch

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        return self._built().run(setting, payloads)

    def update(self, value: Any) -> None:
        self._built().update(value)

    def load(self, number: int) -> float:
        started = time.perf_counter()
        self._built().load(number)
        return time.perf_counter() - started

    def _built(self) -> Model:
        assert self._model is not None, "build comes first"
        return self._model


def _serve(channel: socket.socket, inbox: Inbox) -> None:
    device = Device()
    while True:
        channel.sendall(pack(device.reply(*inbox.receive())))


def _read(incoming: IO[bytes], size: int) -> bytes:
    found = incoming.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _sentence(error: Exception) -> str:
    """Our own errors are sentences already; any other is a bug, whose trace must not get lost."""
    from pliant.errors import PliantError

    if isinstance(error, PliantError):
        return str(error)
    logging.getLogger("pliant.device").error("the device process failed", exc_info=error)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
