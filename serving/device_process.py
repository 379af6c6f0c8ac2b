"""The process that owns a device: it builds a model, then runs what it is sent, one message at a time.

Started by workers.py by its file, with one end of a socket pair as its only argument. Until its first message has told
it the parent's import path it imports nothing but the standard library. It ignores SIGINT and SIGTERM, which a terminal
or BentoML's supervisor sends to the whole family: the parent decides when it ends, by closing the socket, and a parent
that dies closes it too. Messages are pickles: both ends are our own, and nobody else holds the socket.
"""

from __future__ import annotations

import gc
import logging
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, Protocol

HEADER = struct.Struct("!Q")  # bytes of the pickle that follows


class Model(Protocol):
    """What runs on a device. Outputs come in the payloads' order; seconds are measured on the device."""

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]: ...

    def update(self, value: Any) -> None: ...


Build = Callable[[], Model]
"""Loads a model and warms it up, in the device process; pickled by reference or as a frozen dataclass."""


def pack(message: object) -> bytes:
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as channel, channel.makefile("rb") as incoming:
        sys.path[:] = pickle.loads(_receive(incoming))
        try:
            _serve(channel, incoming)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # the parent closed the socket or died


class _Device:
    """What the parent may call; the device thread is this one, so nothing runs at once."""

    def __init__(self) -> None:
        self._model: Model | None = None

    def build(self, build: Build) -> None:
        self._model = build()
        gc.collect()
        gc.freeze()  # a model's modules are many objects; no later collection shall walk them during a launch

    def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        return self._built().run(setting, payloads)

    def update(self, value: Any) -> None:
        self._built().update(value)

    def _built(self) -> Model:
        assert self._model is not None, "build comes first"
        return self._model


def _serve(channel: socket.socket, incoming: IO[bytes]) -> None:
    device = _Device()
    while True:
        body = _receive(incoming)
        try:
            verb, arguments = pickle.loads(body)
            reply: tuple[bool, Any] = (True, getattr(device, verb)(*arguments))
        except Exception as error:  # the boundary: the parent turns it into a WorkerError
            reply = (False, _sentence(error))
        channel.sendall(pack(reply))


def _receive(incoming: IO[bytes]) -> bytes:
    header = incoming.read(HEADER.size)
    if len(header) < HEADER.size:
        raise EOFError
    (length,) = HEADER.unpack(header)
    return incoming.read(length)


def _sentence(error: Exception) -> str:
    """Our own errors are sentences already; any other is a bug, whose trace must not get lost."""
    from pliant.errors import PliantError

    if isinstance(error, PliantError):
        return str(error)
    logging.getLogger("pliant.device").error("the device process failed", exc_info=error)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
