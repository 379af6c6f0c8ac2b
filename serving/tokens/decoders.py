"""Decodes images within limits of time and memory, small ones never behind large ones.

Small images are decoded at once, usual ones in threads, and large ones in a process of their own (decoder_process.py),
one at a time: only a process can be ended, and its memory limited. A large file counts as a large image, whatever it
holds: opening it would hold the interpreter's lock. An image waits only where its deadline allows it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from pliant.errors import InputError, WorkerError
from serving.tokens.images import Pixels, decode, pixel_passes
from serving.workers.helper_process import HelperProcess

INLINE_BYTES = 64 * 1024  # of a file that is opened and decoded at once
OPENED_BYTES = 512 * 1024  # of a file that is opened here: finding out what it is takes up to a millisecond
INLINE_PASSES = 256 * 256  # visited pixels of an image that is decoded at once
THREAD_PASSES = 2_000_000  # visited pixels of an image that is decoded in a thread: some 20 ms
SECONDS = 5.0  # that an image may take in the process
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


class Decoders:
    """Decodes images for one service."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels, self._process = max_pixels, HelperProcess("serving.tokens.decoder_process:main")
        self._usual = DecodeQueue(_in_thread, os.cpu_count() or 1)
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
        queue = self._usual if passes <= THREAD_PASSES else self._large
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
