"""The process that an engine runs in: it takes what is submitted and cancelled, and tells of every iteration.

Started by worker.py by its file, with one end of a socket pair as its only argument. Its first message is the
parent's import path, until which it imports nothing but the standard library; the second says how the engine is built. It
ignores SIGINT and SIGTERM, which a terminal or BentoML's supervisor sends to the whole family: it ends when the parent
closes the socket, or dies. Messages are pickles: both ends are our own, and nobody else holds the socket.

The engine's own thread never waits for the parent: it leaves its news to a thread that sends them, and what has gathered
while that one was busy goes as one message.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pliant.packing.engine.submission import Progress, Submission
    from serving.packing.messages import Build, Engine

HEADER = struct.Struct("!Q")  # bytes of the pickle that follows
STATUS_SECONDS = 0.2  # between two looks at the engine's books, while it has something to tell


class Outbox:
    """`put` from any thread; one thread sends, in their order."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._waiting: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._send, daemon=True).start()

    def put(self, kind: str, value: Any = None) -> None:
        self._waiting.put((kind, value))

    def _send(self) -> None:
        try:
            while True:
                for message in joined([self._waiting.get(), *self._gathered()]):
                    body = pickle.dumps(message, protocol=5)
                    self._channel.sendall(HEADER.pack(len(body)) + body)
        except OSError:
            return  # the parent has gone; `main` finds that out, too

    def _gathered(self) -> list[tuple[str, Any]]:
        return [self._waiting.get_nowait() for _ in range(self._waiting.qsize())]


def joined(messages: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Progress that follows progress becomes one message."""
    found: list[tuple[str, Any]] = []
    for kind, value in messages:
        if kind == "progress" and found and found[-1][0] == "progress":
            found[-1] = kind, [*found[-1][1], *value]
        else:
            found.append((kind, value))
    return found


class ProgressReporter:
    """Carries the engine's news to the parent, and its books now and then."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox, self._told = outbox, 0.0
        self.engine: Engine | None = None

    def deliver(self, news: list[Progress]) -> None:
        """Called in the engine's thread. An engine that failed ends the process: the parent starts everything again."""
        if any(progress.finished == "failed" for progress in news):
            _end(self.engine.status().error if self.engine else "the engine failed while it was built")
        self._outbox.put("progress", news)
        now = time.monotonic()
        if self.engine is not None and now - self._told > STATUS_SECONDS:
            self._told = now
            self._outbox.put("status", self.engine.status())


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=int(sys.argv[1]))
    incoming = channel.makefile("rb")
    with suppress(EOFError, OSError):  # the parent has gone
        sys.path[:] = _receive(incoming)
        serve(incoming, Outbox(channel), _receive(incoming))


def serve(incoming: IO[bytes], outbox: Outbox, build: Build) -> None:
    """Until the parent has gone."""
    teller = ProgressReporter(outbox)
    try:
        engine = build(teller.deliver)
    except Exception as error:  # the boundary: the parent turns it into a WorkerError
        outbox.put("refused", _sentence(error))
        _receive(incoming)  # it closes the socket
        return
    teller.engine = engine
    outbox.put("ready")
    try:
        while True:
            _do(engine, outbox, *_receive(incoming))
    finally:
        engine.stop()


def _do(engine: Engine, outbox: Outbox, verb: str, arguments: Sequence[Any]) -> None:
    match verb:
        case "submit":
            _submit(engine, outbox, *arguments)
        case "cancel":
            engine.cancel(*arguments)
        case "look":
            books = _books(engine)
            outbox.put("looked", (*arguments, engine.status(), books))


def _submit(engine: Engine, outbox: Outbox, submission: Submission) -> None:
    from pliant.errors import InputError, WorkerError

    try:
        engine.submit(submission)
    except InputError as error:
        outbox.put("declined", (submission.prompt.id, str(error)))
    except WorkerError as error:
        _end(str(error))


def _end(reason: str) -> None:
    logging.getLogger("pliant.device").error("the engine's process ends: %s", reason)
    os._exit(1)


def _books(engine: Engine) -> str:
    """What is wrong with them; empty where they balance."""
    try:
        engine.check()
    except AssertionError as error:
        return str(error) or "the books do not balance"
    return ""


def _receive(incoming: IO[bytes]) -> Any:
    head = incoming.read(HEADER.size)
    if len(head) < HEADER.size:
        raise EOFError
    (length,) = HEADER.unpack(head)
    body = incoming.read(length)
    if len(body) < length:
        raise EOFError
    return pickle.loads(body)


def _sentence(error: Exception) -> str:
    """Our own errors are sentences already; any other is a bug, whose trace must not get lost."""
    from pliant.errors import PliantError

    if isinstance(error, PliantError):
        return str(error)
    logging.getLogger("pliant.device").error("the engine could not be built", exc_info=error)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
