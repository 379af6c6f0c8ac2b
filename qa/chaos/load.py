"""Clients that ask at the times of a Poisson process, each on a connection of its own, and count what they get."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

PATIENCE = 120.0  # seconds that a client waits for its answer
DECLARED = frozenset({200, 408, 429, 503})
"""Status codes of an answer, or of declared shedding."""


@dataclass
class Counts:
    """What clients got: answers by status code, of which some are `declared`, and requests without exactly one answer."""

    declared: Collection[int] = DECLARED
    asked: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)

    @property
    def undeclared(self) -> int:
        return sum(count for status, count in self.answers.items() if status not in self.declared)


async def ask(address: tuple[str, int], request: bytes, counts: Counts) -> None:
    """Send one request that asks for the connection to be closed, and read to its end."""
    counts.asked += 1
    began = time.monotonic()
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(*address)
            try:
                writer.write(request)
                content = await reader.read(-1)
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        counts.unanswered.append(f"{error!r} after {time.monotonic() - began:.1f} s")
        return
    status, whole = parsed(content)
    if whole:
        counts.answers[status] += 1
    else:
        counts.unanswered.append(f"{len(content)} bytes that are not one answer: {content[:80]!r}")


def parsed(content: bytes) -> tuple[int, bool]:
    """Return the status of a response, and whether it is exactly one whole response with a length."""
    head, separator, body = content.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
    words = first.split()
    if not separator or len(words) < 2 or not words[1].isdigit() or len(lengths) != 1:
        return 0, False
    return int(words[1]), len(body) == lengths[0]


async def offer(
    address: tuple[str, int], request: bytes, rate: float, seconds: float, seed: int, counts: Counts
) -> None:
    """Ask for so many seconds, `rate` times a second on average; return when all have their answers."""
    draw, tasks = np.random.default_rng(seed), set()
    due = time.monotonic()
    end = due + seconds
    while due < end:
        due += draw.exponential(1 / rate)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        task = asyncio.create_task(ask(address, request, counts))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)


async def capacity(address: tuple[str, int], request: bytes, clients: int = 8, seconds: float = 10.0) -> float:
    """Return the answers a second that so many clients get who ask one after the other."""
    counts, end = Counts(), time.monotonic() + seconds

    async def ask_on() -> None:
        while time.monotonic() < end:
            await ask(address, request, counts)

    await asyncio.gather(*(ask_on() for _ in range(clients)))
    return counts.answers[200] / seconds
