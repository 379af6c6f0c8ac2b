"""Clients that ask at the times of a Poisson process, each on a connection of its own, and count what they get."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from pliant.workload import poisson

PATIENCE = 120.0  # seconds that a client waits for its answer
DECLARED = frozenset({200, 408, 429, 503})
"""Status codes of an answer, or of declared shedding."""


@dataclass
class Clients:
    """Clients of the service at an address, who send the same bytes and count: answers by status code, of which some are
    `declared`, and requests without exactly one answer."""

    address: tuple[str, int]
    request: bytes
    declared: Collection[int] = DECLARED
    answers: Counter[int] = field(default_factory=Counter)
    unanswered: list[str] = field(default_factory=list)

    @property
    def undeclared(self) -> int:
        return sum(count for status, count in self.answers.items() if status not in self.declared)

    async def ask(self) -> None:
        """Send one request that asks for the connection to be closed, and read to its end."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(*self.address)
                try:
                    writer.write(self.request)
                    content = await reader.read(-1)
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            self.unanswered.append(f"{error!r} after {time.monotonic() - began:.1f} s")
            return
        if status := status_of(content):
            self.answers[status] += 1
        else:
            self.unanswered.append(f"{len(content)} bytes that are not one answer: {content[:80]!r}")

    async def offer(self, rate: float, seconds: float, seed: int) -> None:
        """Ask for so many seconds, `rate` times a second on average; return when all have their answers."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as asking:
            for due in poisson(rate, seconds, np.random.default_rng(seed)):
                await asyncio.sleep(max(0.0, begun + due - time.monotonic()))
                asking.create_task(self.ask())

    async def capacity(self, clients: int = 8, seconds: float = 10.0) -> float:
        """Return the answers a second that so many clients get who ask one after the other."""
        before, end = self.answers[200], time.monotonic() + seconds

        async def ask_on() -> None:
            while time.monotonic() < end:
                await self.ask()

        await asyncio.gather(*(ask_on() for _ in range(clients)))
        return (self.answers[200] - before) / seconds


def status_of(content: bytes) -> int:
    """Return the status of what is exactly one whole response with a length; 0 for anything else."""
    head, separator, body = content.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    lengths = [int(line.split(b":")[1]) for line in lines if line.lower().startswith(b"content-length:")]
    words = first.split()
    if not separator or len(words) < 2 or not words[1].isdigit() or lengths != [len(body)]:
        return 0
    return int(words[1])
