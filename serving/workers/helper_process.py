"""A process that does one kind of work for a service, such as decoding, whose time and memory only a process can limit."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
from typing import Any

from pliant.errors import WorkerError
from serving.workers.child_process import HEADER, pack, spawn

NICE = 10  # what such a process lowers its priority by: the event loop and the devices come first
START_SECONDS = 60.0  # that the process may take to start


class HelperProcess:
    """Answers one message at a time. It starts with the first message, and again after it had to be ended.

    `entry` ("module:function") sends one byte when it is ready; then it answers each message with a value, or with an
    exception to raise.
    """

    def __init__(self, entry: str) -> None:
        self._entry, self._turn = entry, asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def call(self, message: Any, seconds: float) -> Any:
        """Return the answer. Whoever is cancelled in his turn ends the process.

        Raises what the process raises, `TimeoutError` after so many seconds, `WorkerError` if the process ends.
        """
        async with self._turn:
            try:
                reader, writer = await self._connected()
                writer.write(pack(message))
                async with asyncio.timeout(seconds):
                    await writer.drain()
                    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
                    answer = pickle.loads(await reader.readexactly(length))
            except (asyncio.IncompleteReadError, OSError) as error:
                self._end()
                if isinstance(error, TimeoutError):
                    raise
                raise WorkerError(f"the process {self._entry} ended") from None
            except BaseException:
                self._end()
                raise
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            connection, self._process = spawn(self._entry)
            self._streams = await asyncio.open_connection(sock=connection)
            async with asyncio.timeout(START_SECONDS):
                await self._streams[0].readexactly(1)
        return self._streams

    def _end(self) -> None:
        process, streams, self._process, self._streams = self._process, self._streams, None, None
        if streams is not None:
            streams[1].close()
        if process is not None:
            process.kill()
            process.wait()
