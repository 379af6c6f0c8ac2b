"""An engine's process as the service uses it: messages go both ways at any time (serving/packing/messages.py).

It is started as every device process is (serving/workers/child_process.py), but sends a message per iteration instead of
answering calls.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from pliant.errors import WorkerError
from pliant.serving.packing.messages import Build
from pliant.serving.workers.child_process import HEADER, pack, spawn
from pliant.serving.workers.device_plan import alone

END_SECONDS = 5.0  # that a process may take to close its journal after its socket is closed


class EngineWorker(Protocol):
    """One engine. `on_message` is called with each message's kind and value; `on_end` once if it dies by itself."""

    on_message: Callable[[str, Any], None]
    on_end: Callable[[], None]

    async def start(self) -> None:
        """Start from any state, and return when the engine runs. Raises `WorkerError`."""

    def send(self, verb: str, *arguments: Any) -> None: ...

    def kill(self) -> None:
        """End the process at once."""

    async def stop(self) -> None: ...


class EngineProcess:
    """An engine in a process of its own. `next_build` gives the build of every start."""

    def __init__(self, next_build: Callable[[], Build], start_limit: float = 300.0) -> None:
        self.on_message: Callable[[str, Any], None] = lambda _kind, _value: None
        self.on_end: Callable[[], None] = lambda: None
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
        """Close the socket, upon which the process ends; kill it if it does not. Wait for its end."""
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
        build, variables = alone(self._next_build(), os.environ)
        entry, interpreter = "pliant.serving.packing.engine.engine_process:main", getattr(build, "interpreter", None)
        connection, self._process = spawn(entry, variables=variables, interpreter=interpreter)
        reader, self._writer = await asyncio.open_connection(sock=connection)
        self._writer.write(pack(build))
        return reader

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                self.on_message(*await _receive(reader))
                await asyncio.sleep(0)  # what has come is read without a pause else
        self.on_end()

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
