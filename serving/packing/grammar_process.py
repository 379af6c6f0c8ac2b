"""The process in which grammars are tried: each message is a grammar, with the processor seconds that it may take.

Each is tried in a copy of the process, whose end gives all back that it took. What the copy may take is limited: whatever
a grammar makes of a library, nothing else is harmed.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
from functools import partial
from typing import IO, Any

from pliant.errors import InputError
from pliant.packing.engine.grammar import Grammars
from pliant.serving.workers.child_process import receive
from pliant.serving.workers.helper_process import help_out, limit_memory

MEMORY = 64 * 1024 * 1024  # bytes beyond what the process has
STACK = 4 * 1024 * 1024  # bytes, half of what the engine's process has
WALL_SECONDS = 5.0  # for a machine that has no time for so little
FINE, REFUSED, TIME, MEMORY_OR_STACK, LATE = "fine", "refused", "time", "memory", "late"
BY_SIGNAL: dict[int, str] = {signal.SIGPROF: TIME, signal.SIGALRM: LATE}


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Try grammars over the tokenizer of the first message until the parent closes the socket."""
    grammars: Grammars = receive(incoming)
    grammars.load()
    help_out(channel, incoming, partial(_try_apart, grammars))


def _try_apart(grammars: Grammars, body: bytes, seconds: float) -> Any:
    """Return what became of a grammar, what is wrong and what would be right, and the processor seconds that it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _try(grammars, body.decode(), seconds, writing)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        written = answer.read()
    _, status, used = os.wait4(child, 0)
    outcome, *reason = written.split("\n")
    if not outcome:
        outcome = BY_SIGNAL.get(os.WTERMSIG(status), MEMORY_OR_STACK) if os.WIFSIGNALED(status) else MEMORY_OR_STACK
    return outcome, tuple(reason), used.ru_utime + used.ru_stime


def _try(grammars: Grammars, grammar: str, seconds: float, writing: int) -> None:
    """Try a grammar in this copy of the process, which ends then."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # an allocation that fails is reported there
        limit_memory(MEMORY)
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WALL_SECONDS)
        try:
            grammars.try_out(grammar, "")
            written = FINE
        except InputError as error:
            written = f"{REFUSED}\n{error.value}\n{error.limit}"
        os.write(writing, written.encode())
    finally:
        os._exit(0)
