"""Workers run launches. `ProcessWorker` keeps the model in a process of its own.

The event loop and the model thus do not share an interpreter lock, and a device process that crashes or hangs costs a
launch and a restart, not the service.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pliant.errors import WorkerError
from pliant.fallbacks import Fallback
from pliant.serving.workers.child_process import HEADER, spawn
from pliant.serving.workers.device_process import ArrayOutbox, Build, Reply
from pliant.serving.workers.devices import alone

logger = logging.getLogger("pliant.serving")

MAX_FALLBACKS = 64
"""The latest fallbacks of a device process that its worker keeps."""

Rebuild = Callable[[Any], Any]
"""Gives the build of a changed model from a worker's present one: each worker keeps its own device."""


class ModelError(WorkerError):
    """The device lives, but its model raised an error with this message."""


class Worker(ABC):
    """One device, of which a `Device` (device_process.py) is called. Every method raises `WorkerError` if it fails.

    The driver calls one method at a time, except `kill`.
    """

    def __init__(self, build: Any, start_limit: float) -> None:
        self.on_end: Callable[[], None] | None = None
        """Called once if the worker dies by itself, also during a call."""
        self.on_fallback: Callable[[Fallback], None] = lambda _: None
        """Called when the device process falls back to a slower way."""
        self.build = build
        """The build of the next restart."""
        self.fallbacks: deque[Fallback] = deque(maxlen=MAX_FALLBACKS)
        """What the device process has fallen back to since it was started."""
        self._start_limit = start_limit

    @abstractmethod
    async def _call(self, verb: str, *arguments: Any) -> Any:
        """Call a method of the device. Raises `ModelError` if the model raises, `WorkerError` if the device is lost."""

    @abstractmethod
    async def start(self) -> None:
        """Return when the model is loaded and has run."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once. A call in progress fails."""

    @abstractmethod
    async def stop(self) -> None: ...

    def _result(self, reply: Reply) -> Any:
        """Return the result in a device's reply, and take its fallbacks. Raises `ModelError` if the model raised."""
        succeeded, value, fallbacks = reply
        for fallback in fallbacks:
            logger.warning("a device process falls back: %s", fallback.reason)
            self.fallbacks.append(fallback)
            self.on_fallback(fallback)
        if not succeeded:
            raise ModelError(value)
        return value

    async def restart(self) -> None:
        """Start again from any state. All updates apply again afterwards."""
        await self.stop()
        self.fallbacks.clear()
        await self.start()

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Return one output per payload, in order, and the seconds that the device took."""
        outputs, seconds = await self._call("run", setting, payloads)
        return outputs, seconds

    def send_ahead(self, setting: int, payloads: Sequence[Any]) -> bool:  # noqa: ARG002
        """Send the launch that the next call of `run` is about while one still runs: it begins as soon as that one ends.

        Returns whether it was sent; the next call is then `run` with these arguments.
        """
        return False

    async def update(self, value: Any, build: Any) -> None:
        """Change the model for all later runs; a restart uses `build`, which includes the change.

        Raises the model's `WorkerError` if it rejects the update, which then has no effect. If the process is dead, its
        restart applies the update, and the next launch reports the death.
        """
        former, self.build = self.build, build
        try:
            async with asyncio.timeout(self._start_limit):
                await self._call("update", value)
        except ModelError:
            self.build = former
            raise
        except TimeoutError:
            self.kill()  # it hangs; the restart builds the updated model
        except WorkerError:
            return

    async def load(self, number: int) -> float:
        """Replace the loaded model by model `number`, and return the seconds that it took."""
        try:
            async with asyncio.timeout(self._start_limit):
                return float(await self._call("load", number))
        except TimeoutError:
            raise WorkerError(f"model {number} was not loaded within {self._start_limit:.0f} s") from None


class ProcessWorker(Worker):
    """Runs a model in a process of its own (device_process.py). See `Worker` for the methods."""

    def __init__(self, build: Build, start_limit: float = 300.0) -> None:
        super().__init__(build, start_limit)
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._outbox: ArrayOutbox | None = None
        self._ahead = False  # whether the next call was sent already

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        try:
            async with asyncio.timeout(self._start_limit):
                build, variables = alone(self.build, os.environ)
                self._outbox = ArrayOutbox()
                entry, loop = "pliant.serving.workers.device_process:main", asyncio.get_running_loop()
                connection, self._process = spawn(entry, self._outbox.fds, variables)
                self._reader = asyncio.StreamReader()
                protocol = _Connection(self._reader, lambda: self.on_end and self.on_end())
                transport, _ = await loop.create_connection(lambda: protocol, sock=connection)
                self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)
                await self._call("build", build)
        except TimeoutError:
            raise WorkerError(f"the device process was not ready within {self._start_limit:.0f} s") from None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Kill the process and wait for its end."""
        process, writer, outbox = self._process, self._writer, self._outbox
        self._process = self._reader = self._writer = self._outbox = None
        self._ahead = False
        if writer is not None:
            writer.close()
        if outbox is not None:
            outbox.close()
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)

    def send_ahead(self, setting: int, payloads: Sequence[Any]) -> bool:
        if self._writer is None or self._outbox is None or self._ahead:
            return False
        self._writer.write(self._outbox.pack(("run", (setting, payloads))))
        self._ahead = True
        return True

    async def _call(self, verb: str, *arguments: Any) -> Any:
        if self._reader is None or self._writer is None or self._outbox is None:
            raise WorkerError("the device process is not running")
        sent, self._ahead = self._ahead, False
        try:
            if not sent:
                self._writer.write(self._outbox.pack((verb, arguments)))
            await self._writer.drain()
            (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            reply = pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerError(f"the device process ended during {verb}") from None
        return self._result(reply)


class _Connection(asyncio.StreamReaderProtocol):
    """Calls `on_end` when the other end closes; a stream's reader would notice only when it reads."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[], object]) -> None:
        super().__init__(reader)
        self._notify_end = on_end

    def eof_received(self) -> bool:
        more = super().eof_received()
        self._notify_end()
        return bool(more)
