"""Decodes images within limits of time and memory, small ones never behind large ones.

Small images are decoded at once: to send one elsewhere takes as long. Usual ones are decoded in as many processes
(`main`) as there are cores to spare, and large ones in a further one, one at a time: only a process can be
ended, and its memory limited. A large file counts as a large image, whatever it holds: opening it would hold the
interpreter's lock. An image waits only where its deadline allows it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import IO, Any, TypeVar

from pliant.errors import InputError, WorkerError
from pliant.models.image import Pixels, decode, pixel_passes
from pliant.serving.workers.helper_process import HelperProcess, help_out, limit_memory

T = TypeVar("T")

logger = logging.getLogger("pliant.serving")

INLINE_BYTES = 64 * 1024  # of a file that is opened and decoded at once
OPENED_BYTES = 512 * 1024  # of a file that is opened here: finding out what it is takes up to a millisecond
INLINE_PASSES = 256 * 256  # visited pixels of an image that is decoded at once
USUAL_PASSES = 2_000_000  # visited pixels of an image that is no large one: some 20 ms
SECONDS = 5.0  # that an image may take in the process
OTHERS = 2  # cores that are left to the event loop and to a device
MOST_PROCESSES = 16
ENTRY = "pliant.serving.tokens.decoders:main"
NEWEST = 0.1  # weight of the newest image in the mean time


class DecodeQueue:
    """Decodes at most `at_once` images at a time, in order of arrival."""

    def __init__(self, run: Callable[[bytes, int, int], Awaitable[Pixels]], at_once: int) -> None:
        self._run, self._at_once = run, at_once
        self._free, self._present = asyncio.Semaphore(at_once), 0
        self._mean = 0.0  # seconds of one image

    async def decode(self, body: bytes, size: int, max_pixels: int, left: float) -> Pixels:
        """Return the pixels. Raises `TimeoutError` if that takes longer than `left` seconds, at once if it surely will."""
        if self._present // self._at_once * self._mean > left:
            raise TimeoutError
        self._present += 1
        try:
            async with asyncio.timeout(left), self._free:
                began = asyncio.get_running_loop().time()
                pixels = await self._run(body, size, max_pixels)
                self._mean += NEWEST * (asyncio.get_running_loop().time() - began - self._mean)
                return pixels
        finally:
            self._present -= 1


class DecoderProcesses:
    """Decodes usual images in `count` processes, each one at a time.

    They start with the first image; until one has started, and where one has died, threads do their work.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free: list[HelperProcess] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._processes = [HelperProcess(ENTRY) for _ in range(count)]

    @property
    def free(self) -> int:
        """Return how many processes have started and have nothing to do."""
        return len(self._free)

    async def decode(self, body: bytes, size: int, max_pixels: int) -> Pixels:
        """Return the image as RGB uint8 [size, size, 3]. Raises `InputError` for an unusable image."""
        while self._processes:
            self._start_soon(self._processes.pop())
        if not self._free:
            return await _in_thread(body, size, max_pixels)
        # Nobody may wait any longer, but ending the process in the middle would cost more than the rest of the image.
        return await asyncio.shield(self._keep(self._decode_in(self._free.pop(), body, size, max_pixels)))

    async def _decode_in(self, process: HelperProcess, body: bytes, size: int, max_pixels: int) -> Pixels:
        try:
            pixels: Pixels = await process.call(SECONDS, [body], size, max_pixels)
        except (TimeoutError, WorkerError) as error:
            logger.error("a decoder's process is started again: %s", error)
            self._start_soon(process)
            return await _in_thread(body, size, max_pixels)
        except InputError:
            self._free.append(process)
            raise
        self._free.append(process)
        return pixels

    def _start_soon(self, process: HelperProcess) -> None:
        self._keep(self._start(process))

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # of an unusable image that nobody waits for any longer

    async def _start(self, process: HelperProcess) -> None:
        try:
            await process.start()
        except (TimeoutError, WorkerError) as error:
            logger.error("a decoder's process could not be started; threads do its work: %s", error)
            return
        self._free.append(process)


class Decoders:
    """Decodes images for one service."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels, self._process = max_pixels, HelperProcess(ENTRY)
        self._processes = DecoderProcesses(min(max(1, len(os.sched_getaffinity(0)) - OTHERS), MOST_PROCESSES))
        self._usual = DecodeQueue(self._processes.decode, self._processes.count)
        self._large = DecodeQueue(self._in_process, 1)

    async def decode(self, body: bytes, size: int, left: float) -> Pixels:
        """Return the image as RGB uint8 [size, size, 3] within `left` seconds.

        Raises `InputError` for an unusable image, `TimeoutError` if there is too little time.
        """
        if len(body) > OPENED_BYTES:
            return await self._large.decode(body, size, self._max_pixels, left)
        inline = len(body) <= INLINE_BYTES
        passes = (
            pixel_passes(body, self._max_pixels)
            if inline
            else await asyncio.to_thread(pixel_passes, body, self._max_pixels)
        )
        if inline and passes <= INLINE_PASSES:
            return decode(body, size, self._max_pixels)
        queue = self._usual if passes <= USUAL_PASSES else self._large
        return await queue.decode(body, size, self._max_pixels, left)

    async def _in_process(self, body: bytes, size: int, max_pixels: int) -> Pixels:
        try:
            pixels: Pixels = await self._process.call(SECONDS, [body], size, max_pixels)
            return pixels
        except TimeoutError:
            raise InputError("image", "too much work to decode", f"decoded within {SECONDS:g} s") from None
        except WorkerError:
            raise InputError("image", "too much work to decode", "decoded within the memory that is allowed") from None


async def _in_thread(body: bytes, size: int, max_pixels: int) -> Pixels:
    return await asyncio.to_thread(decode, body, size, max_pixels)


MEMORY = 256 * 1024 * 1024  # bytes beyond what the process has when it starts


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Decode images until the parent closes the socket."""
    limit_memory(MEMORY)
    help_out(channel, incoming, _answer)


def _answer(body: bytes, size: int, max_pixels: int) -> Any:
    try:
        pixel_passes(body, max_pixels)
        return decode(body, size, max_pixels)
    except InputError as error:
        return error
