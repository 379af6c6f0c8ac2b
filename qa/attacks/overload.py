"""More requests than a service's HTTP can carry: light clients that ask, and what is left of the answers in time.

Requests come at times of a Poisson process, each the same bytes, on a kept connection that is free or on a new one. The same
rate gives answers that differ by a tenth from one minute to the next, so rounds offer all rates in turn, and their median
counts. The clients are a process of their own, on a core of their own where there are two.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat, takewhile
from operator import mul
from statistics import median
from typing import Any

import numpy as np
import psutil

from qa.targets import say

PATIENCE = 10.0  # seconds that a client waits
STEP = 1.35  # from one rate to the next, in search of the best
PAST = 2  # rates that must be worse than the best before the search ends
FIRST, LAST = 40.0, 5000.0  # requests a second that are offered, the least and the most
PAUSE = 1.0  # seconds between two rates


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of a whole POST request on a connection that is kept, and its deadline in seconds."""

    request: bytes
    deadline: float


def post(path: str, body: bytes, deadline: float) -> Message:
    """Return a request with a JSON body."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    return Message("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body, deadline)


@dataclass
class Answers:
    """Of one rate: how many were in time, and how many said `on_time` although the client had them too late.

    `lag` is the most seconds by which the clients were behind their own schedule: they were overloaded themselves.
    """

    sent: int = 0
    useful: int = 0
    answered: int = 0
    false: int = 0
    refused: int = 0
    lag: float = 0.0

    @property
    def late(self) -> int:
        return self.answered - self.useful


class Client(asyncio.Protocol):
    """A connection with one request at a time; kept for the next one."""

    def __init__(self, kept: list[Client], answers: Answers, deadline: float) -> None:
        self._kept, self._answers, self._deadline = kept, answers, deadline
        self._data, self._began, self.done = b"", 0.0, True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, began: float) -> None:
        self._data, self._began, self.done = b"", began, False
        self._transport.write(request)
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return
        seconds = time.monotonic() - self._began
        self._end()
        if head.startswith(b"HTTP/1.1 200"):
            self._answers.answered += 1
            self._answers.useful += seconds <= self._deadline
            self._answers.false += seconds > self._deadline and b'"on_time":true' in body.replace(b" ", b"")
        else:
            self._answers.refused += 1
        if b"connection: close" not in head.lower():
            self._kept.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end()
        if self in self._kept:
            self._kept.remove(self)

    def close(self) -> None:
        self._transport.close()

    def _end(self) -> None:
        self.done = True
        if self._timer is not None:
            self._timer.cancel()


async def offer(address: tuple[str, int], message: Message, rate: float, seconds: float) -> Answers:
    """Ask at times of a Poisson process."""
    draw, loop, answers = np.random.default_rng(int(rate)), asyncio.get_running_loop(), Answers()
    kept: list[Client] = []
    clients: list[Client] = []
    tasks: set[asyncio.Task[None]] = set()

    async def ask_anew(began: float) -> None:
        try:
            connecting = loop.create_connection(lambda: Client(kept, answers, message.deadline), *address)
            _, client = await asyncio.wait_for(connecting, PATIENCE)
        except (OSError, TimeoutError):
            return
        clients.append(client)
        client.ask(message.request, began)

    due = time.monotonic()
    end = due + seconds
    while due < end:
        due += draw.exponential(1 / rate)
        wait = due - time.monotonic()
        if wait > 0 or answers.sent % 16 == 0:
            await asyncio.sleep(max(0.0, wait))
        answers.lag = max(answers.lag, time.monotonic() - due)
        if kept:
            kept.pop().ask(message.request, time.monotonic())
        else:
            tasks.add(task := asyncio.create_task(ask_anew(time.monotonic())))
            task.add_done_callback(tasks.discard)
        answers.sent += 1
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and (tasks or not all(client.done for client in clients)):
        await asyncio.sleep(0.05)
    for client in clients:
        client.close()
    return answers


def offered(address: tuple[str, int], message: Message, rate: float, seconds: float) -> Answers:
    """Ask from a process of its own."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_offer, args=(address, message, rate, seconds, theirs), daemon=True)
    process.start()
    answers: Answers = ours.recv()
    process.join()
    return answers


def _offer(address: tuple[str, int], message: Message, rate: float, seconds: float, result: Any) -> None:
    if len(cores := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, cores[-1:])
    result.send(asyncio.run(offer(address, message, rate, seconds)))


def leave_a_core(supervisor: int) -> None:
    """Keep a service, all its processes and threads, off the core of the clients, where there are two."""
    if len(cores := sorted(os.sched_getaffinity(0))) < 2:
        return
    for process in (family := psutil.Process(supervisor), *family.children(recursive=True)):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores[:-1])


@dataclass(frozen=True, slots=True)
class Overload:
    """What came of each rate: in search of the best one, then in rounds at that one and at multiples of its answers."""

    seconds: float
    search: dict[float, Answers] = field(default_factory=dict)
    rounds: list[dict[int, Answers]] = field(default_factory=list)

    def rate(self, times: int) -> float:
        """Return the rate of `times`; 1: the one with the most answers in time, else so many times those."""
        best = max(self.search, key=lambda rate: self.search[rate].useful)
        return best if times == 1 else times * self.search[best].useful / self.seconds

    def share(self, times: int) -> float:
        """Return the answers in time at so many times, over those at the best rate in the same round, in the median."""
        return median(row[times].useful / max(row[1].useful, 1) for row in self.rounds)

    def total(self, figure: str) -> int:
        """Return the sum of a figure over all rates and rounds."""
        rows = [*self.search.values(), *(row for each in self.rounds for row in each.values())]
        return sum(getattr(row, figure) for row in rows)


def measure(
    url: str, message: Message, seconds: float, rounds: int, times: Sequence[int], rates: Sequence[float] = ()
) -> Overload:
    """Look for the rate at which most answers are in time, among these or anew, then offer that and more in turns."""
    host, port = url.removeprefix("http://").split(":")
    result = Overload(seconds)

    def offer_at(rate: float, what: str) -> Answers:
        answers = offered((host, int(port)), message, rate, seconds)
        say(f"{what}, {rate:.0f}/s: {answers}")
        time.sleep(PAUSE)
        return answers

    for rate in rates or takewhile(LAST.__ge__, accumulate(repeat(STEP), mul, initial=FIRST)):
        useful = [row.useful for row in result.search.values()]
        if not rates and len(useful) > PAST and max(useful[-PAST:]) < max(useful[:-PAST]):
            break  # the latest are all worse than one before them
        result.search[rate] = offer_at(rate, "search")
    for number in range(rounds):
        # In the opposite order every other time, so that no rate always follows the same one.
        order = sorted((1, *times), reverse=number % 2 == 1)
        result.rounds.append({each: offer_at(result.rate(each), f"round {number + 1}, {each}x") for each in order})
    return result
