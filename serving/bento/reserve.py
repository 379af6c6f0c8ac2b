"""Keeps the memory of a service process from growing while it runs: what it needs when it is full is taken at the start.

A service needs most memory while all connections wait for an answer, as when its device is restarted. What is freed
afterwards stays with the process: Python gives memory back by the megabyte, and in each of these something is still in
use. So without a reserve a service grows with the fullest moment so far, over days, as if it leaked; and it is only
when it is full that the system might lack the memory.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

SMALL, LARGE = 36 * 1024, 10 * 1024
"""Bytes that a waiting connection takes, in objects of at most 512 bytes and in larger ones; measured."""
SMALL_BLOCK = 512 - sys.getsizeof(b"")  # bytes of content of the largest object that Python's own allocator serves
LARGE_BLOCK = 64 * 1024  # far below what the system's allocator maps apart, and gives back at once
M_ARENA_MAX = -8  # of glibc's malloc.h
KEPT = 512 * 1024  # bytes of blocks of which one stays in use: a part of each megabyte, so that none is given back

Reserve = tuple[bytes, ...]
"""What stays in use, so that the memory around it stays with the process."""


def share_one_arena() -> None:
    """Let all threads of this process allocate from one arena, where the system's allocator is glibc's.

    By default each thread has an arena of its own, and none can use what is free in another: polls of the registry, in
    one of several threads each time, let all of them grow for hours. Called before there are threads. Not inherited by
    the device processes.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def reserve(connections: int) -> Reserve:
    """Take the memory that so many waiting connections need, for whatever the process allocates while the reserve lives."""
    return (*_fill(connections * SMALL, SMALL_BLOCK), *_fill(connections * LARGE, LARGE_BLOCK))


def _fill(size: int, block: int) -> list[bytes]:
    """Take `size` bytes in blocks, free nearly all of them, and return those that stay."""
    blocks = [b"x" * block for _ in range(-(-size // block))]  # written to, so that the system gives the memory now
    return blocks[:: KEPT // block] + blocks[-1:]
