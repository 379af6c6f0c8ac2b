"""Workers: where launches run. `ProcessWorker` keeps the model in a process of its own.

So the event loop's Python and the model's Python do not fight over one interpreter lock, and a device process that
crashes or hangs is a failed launch and a restart, not a dead service. It is a plain subprocess on a socket that the
event loop reads itself: no thread stands between, and nothing of BentoML's main module is imported again, as a
multiprocessing pool would do. Knows nothing of schedulers, requests or what a model does.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pliant.errors import WorkerError
from serving.workers import device_process
from serving.workers.device_process import HEADER, Build, Outbox, pack


class Worker(Protocol):
    """One device. Its driver calls one method at a time, but for `kill`. Failures are `WorkerError`."""

    ended: Callable[[], None] | None
    """Called once when it dies by itself, whether or not a call is in progress."""

    async def start(self) -> None:
        """Return when a model is loaded and has run."""

    async def restart(self) -> None:
        """Like `start`, from whatever state it is in; all updates hold again afterwards."""

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        """Outputs in the payloads' order, and the seconds that the device took."""

    async def update(self, value: Any, build: Any) -> None:
        """Tell the model something for all later runs; `build` is how to start with it already told."""

    def remember(self, build: Any) -> None:
        """How to build the model should it start again; what runs is not touched."""

    async def load(self, number: int) -> float:
        """Put model `number` in the place of the one that is loaded; the seconds that it took."""

    def kill(self) -> None:
        """End it now, whatever it does; a call in progress fails."""

    async def stop(self) -> None: ...


class ProcessWorker:
    """Runs `build()` and then launches in a process of its own; see device_process.py for the other end."""

    def __init__(self, build: Build, start_limit: float = 300.0) -> None:
        self.ended: Callable[[], None] | None = None
        self._build = build
        self._start_limit = start_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._outbox: Outbox | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        try:
            async with asyncio.timeout(self._start_limit):
                await self._spawn()
                await self._ask("build", self._build)
        except TimeoutError:
            raise WorkerError(f"the device process was not ready within {self._start_limit:.0f} s") from None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def run(self, setting: int, payloads: Sequence[Any]) -> tuple[Sequence[Any], float]:
        outputs, seconds = await self._ask("run", setting, payloads)
        return outputs, seconds

    async def update(self, value: Any, build: Build) -> None:
        """An update that the model refuses raises and is forgotten; one that meets a dead process waits for its restart.

        The death itself comes out with the next launch.
        """
        former, self._build = self._build, build
        try:
            async with asyncio.timeout(self._start_limit):
                await self._ask("update", value)
        except _RefusedError:
            self._build = former
            raise
        except TimeoutError:
            self.kill()  # it hangs; started again it is built as it is to be
        except WorkerError:
            return

    def remember(self, build: Build) -> None:
        self._build = build

    async def load(self, number: int) -> float:
        try:
            async with asyncio.timeout(self._start_limit):
                return float(await self._ask("load", number))
        except TimeoutError:
            raise WorkerError(f"model {number} was not loaded within {self._start_limit:.0f} s") from None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    async def stop(self) -> None:
        """Kill and reap: nothing is in progress that anyone waits for."""
        process, writer, outbox = self._process, self._writer, self._outbox
        self._process = self._reader = self._writer = self._outbox = None
        if writer is not None:
            writer.close()
        if outbox is not None:
            outbox.close()
        if process is not None:
            process.kill()
            await asyncio.to_thread(process.wait)

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        self._outbox = Outbox()
        with theirs:
            shared = [theirs.fileno(), self._outbox.fd]
            # -P: the script's own folder stays off the import path, where serving/journal.py would be `journal`.
            command = [sys.executable, "-P", str(Path(device_process.__file__)), *map(str, shared)]
            self._process = subprocess.Popen(command, pass_fds=shared, stdin=subprocess.DEVNULL)
        self._reader = asyncio.StreamReader()
        protocol = _Connection(self._reader, self._on_end)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, asyncio.get_running_loop())
        self._writer.write(pack(sys.path))

    def _on_end(self) -> None:
        if self.ended is not None:
            self.ended()

    async def _ask(self, verb: str, *arguments: Any) -> Any:
        if self._reader is None or self._writer is None or self._outbox is None:
            raise WorkerError("the device process is not running")
        try:
            self._writer.write(self._outbox.pack((verb, arguments)))
            await self._writer.drain()
            (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            done, value = pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError):
            raise WorkerError(f"the device process ended during {verb}") from None
        if not done:
            raise _RefusedError(value)
        return value


class _Connection(asyncio.StreamReaderProtocol):
    """Tells at once of the other end's end, which a stream's reader would only find when it reads."""

    def __init__(self, reader: asyncio.StreamReader, on_end: Callable[[], None]) -> None:
        super().__init__(reader)
        self._on_end = on_end

    def eof_received(self) -> bool:
        more = super().eof_received()
        self._on_end()
        return bool(more)


class _RefusedError(WorkerError):
    """The process lives, but its model raised; carries that error's sentence."""
