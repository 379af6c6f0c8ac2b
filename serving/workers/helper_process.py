"""A process that does one kind of work for a service, such as decoding, whose time and memory only a process can limit.

What comes and goes may be megabytes, which the event loop handles in pieces and copies as rarely as it can: copying ten
megabytes takes it some milliseconds. So content is sent as it is, behind a message with its size, and the long texts of
an answer come before the answer itself, some at a time.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import resource
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pliant.errors import WorkerError
from pliant.serving.workers.child_process import HEADER, pack, read, receive, spawn

NICE = 10  # what such a process lowers its priority by: the event loop and the devices come first
START_SECONDS = 60.0  # that the process may take to start
PIECE = 256 * 1024  # bytes that the event loop handles at a time
DATA_FIELD = 5  # of /proc/self/statm: pages of data
LONG = 1024  # characters of a text that is not part of the pickle of an answer


class HelperProcess:
    """Answers one message at a time. It starts with the first message, and again after it had to be ended.

    `entry` ("module:function") calls `help_out`, and before that receives `first`, if that is given.
    """

    def __init__(self, entry: str, first: object = None) -> None:
        self._entry, self._first, self._turn = entry, first, asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process where it does not run. Raises `WorkerError` if it ends, `TimeoutError` if it takes too long."""
        async with self._turn:
            with self._ending_if_it_fails():
                await self._connected()

    async def call(self, seconds: float, content: Sequence[bytes], *arguments: object) -> Any:
        """Return the answer to `content`, given in pieces. A caller that is cancelled in its turn ends the process.

        Raises what the process raises, `TimeoutError` after so many seconds, `WorkerError` if the process ends.
        """
        async with self._turn:
            with self._ending_if_it_fails():
                reader, writer = await self._connected()
                async with asyncio.timeout(seconds):
                    writer.write(pack((sum(map(len, content)), arguments)))
                    for piece in small_pieces(content, PIECE):
                        writer.write(piece)
                        await writer.drain()
                    answer = await _read_answer(reader)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @contextmanager
    def _ending_if_it_fails(self) -> Iterator[None]:
        """End the process if the block raises: what is left in its socket belongs to no later call."""
        try:
            yield
        except (asyncio.IncompleteReadError, OSError) as error:
            self.end()
            if isinstance(error, TimeoutError):
                raise
            raise WorkerError(f"the process {self._entry} ended") from None
        except BaseException:
            self.end()
            raise

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            connection, self._process = spawn(self._entry)
            self._streams = await asyncio.open_connection(sock=connection)
            if self._first is not None:
                self._streams[1].write(pack(self._first))
            async with asyncio.timeout(START_SECONDS):
                await self._streams[0].readexactly(1)
        return self._streams

    def end(self) -> None:
        """End the process, with what it does; another call would start it again."""
        process, streams, self._process, self._streams = self._process, self._streams, None, None
        if streams is not None:
            streams[1].close()
        if process is not None:
            process.kill()
            process.wait()


def small_pieces(content: Iterable[bytes], size: int) -> Iterator[memoryview]:
    """Yield the content in pieces of at most `size` bytes."""
    for piece in content:
        for start in range(0, len(piece), size):
            yield memoryview(piece)[start : start + size]


def help_out(channel: socket.socket, incoming: IO[bytes], answer: Callable[..., Any]) -> None:
    """Be a helper process until the parent closes the socket: `answer` gets each content, and returns what to answer.

    An exception that it returns is raised by `call`.
    """
    os.nice(NICE)
    channel.sendall(b"!")
    while True:
        size, arguments = receive(incoming)
        _send_answer(channel, answer(read(incoming, size), *arguments))


def limit_memory(size: int) -> None:
    """Limit this process's data to `size` bytes more than it has, where the system says how much that is."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        present = int(statm.read_text().split()[DATA_FIELD]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (present + size, resource.RLIM_INFINITY))


class _Pickler(pickle.Pickler):
    """Pickles an answer without its long texts, which it collects."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file, protocol=5)
        self.texts: list[str] = []

    def persistent_id(self, value: Any) -> int | None:
        if type(value) is not str or len(value) <= LONG:
            return None
        self.texts.append(value)
        return len(self.texts) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, body: bytes, texts: list[str]) -> None:
        super().__init__(io.BytesIO(body))
        self._texts = texts

    def persistent_load(self, index: int) -> str:
        return self._texts[index]


def _send_answer(channel: socket.socket, answer: Any) -> None:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(answer)
    some: list[str] = []
    for text in pickler.texts:
        if some and sum(map(len, some)) + len(text) > PIECE:
            channel.sendall(pack(some))
            some = []
        some.append(text)
    if some:
        channel.sendall(pack(some))
    channel.sendall(pack(None))
    channel.sendall(HEADER.pack(file.tell()))
    channel.sendall(file.getbuffer())


async def _read_answer(reader: asyncio.StreamReader) -> Any:
    texts: list[str] = []
    while (some := pickle.loads(await _read_message(reader))) is not None:
        texts += some
        await asyncio.sleep(0)  # others are served in between
    return _Unpickler(await _read_message(reader), texts).load()


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return await reader.readexactly(length)
