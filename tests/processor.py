"""What of the processor at hand decides whether a test can run, and how long its work may take here."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pliant.precision import has_bfloat16

NEEDS_BFLOAT16 = pytest.mark.skipif(
    not has_bfloat16("cpu"), reason="this processor has no instructions for bfloat16, or torch may not use them"
)


def cost(work: Callable[[], object], repeats: int = 3) -> float:
    """Return the processor time of `work` over that of 100,000 additions in Python, some milliseconds on most machines.

    Both are the least of several runs in turns, of processor time, so that neither a slow processor nor other programs
    beside the tests change much.
    """
    pairs = [(_seconds(work), _seconds(_additions)) for _ in range(repeats)]
    seconds, unit = (min(column) for column in zip(*pairs, strict=True))
    return seconds / unit


def _additions() -> int:
    total = 0
    for each in range(100_000):
        total += each
    return total


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
