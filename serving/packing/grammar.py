"""Tries the grammars of requests in a process of their own, before an engine that others share gets one.

The process tries one at a time, in a copy of itself, whose end gives all back that it took: what the copy may take is
limited, and whatever a grammar makes of a library, nothing else is harmed. Each is tried for a short time first and for a
longer one behind those that have not been tried. Tenants take turns by the processor seconds that theirs took. What became
of a grammar is remembered, so a refused one costs nothing when it comes again, nor does one whose texts took an engine too
much time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import resource
import signal
import socket
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import IO, Any

from pliant.errors import InputError, WorkerError
from pliant.fairness import Fairness
from pliant.packing.engine.grammar import Grammars
from pliant.packing.scheduling.request import FOREVER
from pliant.serving.client import Client
from pliant.serving.driver import Rejected
from pliant.serving.http.api_errors import ApiError, api_error_of_drop
from pliant.serving.workers.child_process import receive
from pliant.serving.workers.helper_process import HelperProcess, help_out, limit_memory

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


logger = logging.getLogger("pliant.serving")

ENTRY = "pliant.serving.packing.grammar:main"
FIRST_SECONDS, SECONDS = 0.03, 0.25  # of a processor: of the first try and of the second
LIMIT = 2 * WALL_SECONDS  # seconds in which the process answers
REMEMBERED = 4096  # grammars, by 32 bytes each
MOST_WAITING = 64  # grammars of one tenant

Trouble = tuple[str, str] | None
"""What is wrong with a grammar and what would be right; None: nothing is."""
COSTLY: Trouble = ("too complex", "one whose texts take less work")


@dataclass(slots=True, eq=False)
class _Waiting:
    number: int
    key: bytes
    grammar: str
    client: Client
    trouble: asyncio.Future[Trouble]
    again: bool = False  # the first try took too long


class GrammarChecks:
    """Checks grammars over one tokenizer for one event loop. The process starts with the first one."""

    def __init__(self, grammars: Grammars) -> None:
        self._process = HelperProcess(ENTRY, grammars)
        self._known: dict[bytes, Trouble] = {}
        self._waiting: dict[bytes, _Waiting] = {}  # or being tried
        self._queue: dict[int, _Waiting] = {}
        self._fairness, self._numbers = Fairness(), count()
        self._running: asyncio.Task[None] | None = None

    async def check(self, grammar: str, name: str, client: Client) -> None:
        """Raise `InputError` for a grammar that cannot be used; `name` is its field.

        Raises `ApiError` if the tenant has too many waiting or the machine no time, `WorkerError` without a
        process.
        """
        key = _key(grammar)
        trouble = self._known[key] if key in self._known else await self._tried(key, grammar, client)
        if trouble is not None:
            raise InputError(name, *trouble)

    def refuse(self, grammar: str) -> None:
        """Remember that the texts of a grammar took an engine too much time."""
        self._remember(_key(grammar), COSTLY)

    def stop(self) -> None:
        """End the process. What waits goes on untried: to the next generation, which tries it, or to an engine that ends."""
        if self._running is not None:
            self._running.cancel()
        for waiting in self._waiting.values():
            waiting.trouble.set_result(None)
        self._waiting, self._queue = {}, {}
        self._process.end()

    async def _tried(self, key: bytes, grammar: str, client: Client) -> Trouble:
        waiting = self._waiting.get(key)
        if waiting is None:
            if sum(each.client.tenant == client.tenant for each in self._queue.values()) >= MOST_WAITING:
                raise api_error_of_drop(Rejected("full", SECONDS * MOST_WAITING), FOREVER)
            future = asyncio.get_running_loop().create_future()
            waiting = self._waiting[key] = _Waiting(next(self._numbers), key, grammar, client, future)
            self._enqueue(waiting)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(waiting.trouble)

    def _enqueue(self, waiting: _Waiting) -> None:
        self._queue[waiting.number] = waiting
        self._fairness.join(waiting.number, waiting.client.tenant, waiting.client.weight)

    def _next(self) -> _Waiting:
        for turn in self._fairness.turns():
            whose = [each for each in self._queue.values() if turn is None or each.client.tenant in turn]
            if whose:
                return min(whose, key=lambda each: (each.again, each.number))
        raise AssertionError("nothing waits")

    async def _run(self) -> None:
        while self._queue:
            waiting = self._next()
            seconds = SECONDS if waiting.again else FIRST_SECONDS
            del self._queue[waiting.number]
            self._fairness.launch(waiting.number, [waiting.number], seconds)
            try:
                body = [waiting.grammar.encode()]
                outcome, reason, used = await self._process.call(LIMIT, body, seconds)
            except Exception as error:  # anything from the process; the next one starts another
                logger.error("a grammar could not be tried: %s: %s", type(error).__name__, error)
                self._fairness.ended(waiting.number)
                self._end(waiting, WorkerError("the grammar could not be tried"))
                continue
            self._fairness.ended(waiting.number, used)
            if outcome == TIME and not waiting.again:
                waiting.again = True
                self._enqueue(waiting)
                continue
            if outcome == LATE:
                self._end(
                    waiting, ApiError(503, "late", "there was no time to try the form of the output", retry_after=1.0)
                )
                continue
            troubles: dict[str, Trouble] = {
                FINE: None,
                TIME: ("too complex", f"one that is compiled in {SECONDS:g} s of a processor"),
                REFUSED: reason,
            }
            beyond = ("too complex", f"one that is compiled within {MEMORY >> 20} MiB")
            self._remember(waiting.key, troubles.get(outcome, beyond))
            self._end(waiting, None)

    def _end(self, waiting: _Waiting, error: Exception | None) -> None:
        del self._waiting[waiting.key]
        if error is None:
            waiting.trouble.set_result(self._known[waiting.key])
        else:
            waiting.trouble.set_exception(error)
            waiting.trouble.exception()  # nobody may wait for it any longer

    def _remember(self, key: bytes, trouble: Trouble) -> None:
        self._known.pop(key, None)
        self._known[key] = trouble
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]


def _key(grammar: str) -> bytes:
    return hashlib.sha256(grammar.encode()).digest()
