"""The process that an engine runs in, as the service sees it: messages both ways, whenever there is something to say.

A plain subprocess on a socket pair, as workers.py has them; but nobody waits for an answer here, since an engine speaks
once an iteration. Knows nothing of what the messages say but the first ones (see serving/packing/messages.py).
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pliant.errors import WorkerError
from serving.packing.engine import engine_process
from serving.packing.messages import Build
from serving.workers.device_process import HEADER, pack

END_SECONDS = 5.0  # that a process may take to close its journal, once it is told to end


class Worker(Protocol):
    """One engine. `heard` is called with every message's kind and value, `ended` once where it dies by itself."""

    heard: Callable[[str, Any], None]
    ended: Callable[[], None]

    async def start(self) -> None:
        """Return when it can be sent something. From whatever state it is in. Raises `WorkerError`."""

    def send(self, verb: str, *arguments: Any) -> None: ...

    def kill(self) -> None:
        """End it now, whatever it does."""

    async def stop(self) -> None: ...


class ProcessWorker:
    """`next_build` is asked at every start."""

    def __init__(self, next_build: Callable[[], Build], start_limit: float = 300.0) -> None:
        self.heard: Callable[[str, Any], None] = lambda _kind, _value: None
        self.ended: Callable[[], None] = lambda: None
        self._next_build, self._start_limit = next_build, start_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._listening: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        await self.stop()
        try:
            async with asyncio.timeout(self._start_limit):
                reader = await self._spawn()
                kind, value = await _receive(reader)
        except TimeoutError:
            raise await self._failed(f"was not ready within {self._start_limit:.0f} s") from None
        except (asyncio.IncompleteReadError, OSError):
            raise await self._failed("ended before it was ready") from None
        if kind != "ready":
            raise await self._failed(f"could not start: {value}")
        self._listening = asyncio.create_task(self._listen(reader))

    def send(self, verb: str, *arguments: Any) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack((verb, arguments)))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """It ends by itself when the socket is closed; or else it is killed. Reaped, too."""
        process, writer, listening = self._process, self._writer, self._listening
        self._process = self._writer = self._listening = None
        if listening is not None and listening is not asyncio.current_task():
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening
        if writer is not None:
            writer.close()
        if process is not None:
            await asyncio.to_thread(_reap, process)

    async def _spawn(self) -> asyncio.StreamReader:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", str(Path(engine_process.__file__)), str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        self._writer.write(pack(sys.path) + pack(self._next_build()))
        return reader

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                self.heard(*await _receive(reader))
        self.ended()

    async def _failed(self, how: str) -> WorkerError:
        await self.stop()
        return WorkerError(f"the engine process {how}")


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _receive(reader: asyncio.StreamReader) -> Any:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return pickle.loads(await reader.readexactly(length))
