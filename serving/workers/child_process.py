"""Child processes of a service: how they are started, and the messages between parent and child.

A child is a plain subprocess on a socket pair that the parent's event loop reads directly, without a thread between, and
without importing BentoML's main module again as a multiprocessing pool would. It runs this file, which imports only the
standard library; the first message is the parent's import path, and then the child imports its own module. It ignores
SIGINT and SIGTERM, which a terminal or BentoML's supervisor sends to the whole process group, and ends when the parent
closes the socket or dies. Messages are pickles: both ends are our own, and nobody else holds the socket.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

HEADER = struct.Struct("!Q")  # bytes of the pickle that follows

_LOWEST: ContextVar[bool] = ContextVar("whether children have the lowest priority", default=False)


@contextmanager
def lowest_priority() -> Iterator[None]:
    """Let children that are started in this context run only where a processor is idle else (Linux: SCHED_IDLE).

    A process cannot take that back without privileges.
    """
    token = _LOWEST.set(True)
    try:
        yield
    finally:
        _LOWEST.reset(token)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python in an environment of its own, with all the variables that its processes get."""

    python: Path
    environment: Mapping[str, str]


def spawn(
    entry: str,
    handed_down: Sequence[int] = (),
    variables: Mapping[str, str] | None = None,
    interpreter: Interpreter | None = None,
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start `entry` ("module:function") in a child, and return the parent's end of the socket pair and the process.

    The function is called with the child's end, a stream of incoming bytes, and the file descriptors `handed_down`.
    `variables` are laid over the environment that the child inherits. `interpreter`: another one than this one's, whose
    packages go before ours.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        descriptors = [theirs.fileno(), *handed_down]
        # -P: the script's own folder stays off the import path, where serving/journal.py would be `journal`.
        other = interpreter is not None
        python = str(interpreter.python) if interpreter is not None else sys.executable
        command = [python, "-P", __file__, entry, *map(str, descriptors)]
        environment = {**(interpreter.environment if interpreter is not None else os.environ), **(variables or {})}
        process = subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL, env=environment)
        if _LOWEST.get():
            with suppress(OSError, AttributeError):  # an operating system without it
                os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
    behind = str(Path(str(import_module("pliant").__file__)).parents[1])  # this file may be reached over a link
    ours.sendall(pack([] if other else sys.path) + pack([behind] if other else []))
    return ours, process


def pack(message: object) -> bytes:
    """Return the bytes of a message on the socket."""
    body = pickle.dumps(message, protocol=5)
    return HEADER.pack(len(body)) + body


def receive(incoming: IO[bytes]) -> Any:
    """Wait for a message. Raises `EOFError` if the other end is closed."""
    (length,) = HEADER.unpack(read(incoming, HEADER.size))
    return pickle.loads(read(incoming, length))


def read(incoming: IO[bytes], size: int) -> bytes:
    """Wait for `size` bytes. Raises `EOFError` if the other end is closed."""
    content = incoming.read(size)
    if len(content) < size:
        raise EOFError
    return content


def sentence(error: Exception, what_failed: str) -> str:
    """Return the message of an error for the parent. Any error but a `PliantError` is a bug and is logged with its trace."""
    from pliant.errors import PliantError

    if isinstance(error, PliantError):
        return str(error)
    logging.getLogger("pliant.device").error(what_failed, exc_info=error)
    return f"{type(error).__name__}: {error}"


def main(entry: str, channel_fd: str, *handed_down: str) -> None:
    """Run `entry` until it returns or the parent closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = socket.socket(fileno=int(channel_fd))
    with channel, channel.makefile("rb") as incoming, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        path, behind = receive(incoming), receive(incoming)
        sys.path[:] = [*(path or sys.path), *behind]
        if os.environ.get("PLIANT_LOG_FORMAT") == "json" and not behind:  # another interpreter has no JSON lines
            import_module("pliant.serving.monitoring.logs").install()
        module, _, function = entry.partition(":")
        getattr(import_module(module), function)(channel, incoming, *map(int, handed_down))


if __name__ == "__main__":
    main(*sys.argv[1:])
