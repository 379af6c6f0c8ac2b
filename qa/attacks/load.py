"""A light load generator: requests at their times, or as fast as answers come, on connections that are kept.

It is run in a process of its own. `measure` offers a service more requests than its HTTP can carry. The same rate gives
answers that differ by a tenth from one minute to the next, so rounds offer all rates in turn, and their median counts.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, repeat, takewhile
from operator import mul
from statistics import median
from typing import Any

import numpy as np
import psutil

from pliant.workload import poisson
from qa.targets import say

PATIENCE = 10.0  # seconds that a client waits
STEP = 1.35  # from one rate to the next, in search of the best
PAST = 2  # rates that must be worse than the best before the search ends
FIRST, LAST = 40.0, 5000.0  # requests a second that are offered, the least and the most
PAUSE = 1.0  # seconds between two rates

Done = Callable[[int, bytes], None]
"""Takes the status and the body of an answer; status 0: none came."""


def post(path: str, body: bytes, key: str = "") -> bytes:
    """Return the bytes of a whole request with a JSON body on a connection that is kept."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json"]
    lines += [f"authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


@dataclass(slots=True)
class Reached:
    """What became of a request. `due`, `lag`: when it was to be sent, and how much later it was, since the clients were
    overloaded themselves. `seconds`: from its sending to its whole answer. `on_time`: whether the answer says so."""

    name: str
    due: float
    lag: float
    status: int = 0
    seconds: float = 0.0
    on_time: bool = False

    def end(self, began: float, status: int, body: bytes) -> None:
        self.status, self.seconds = status, time.monotonic() - began
        self.on_time = b'"on_time":true' in body.replace(b" ", b"")


class Connection(asyncio.Protocol):
    """A connection with one request at a time; kept for the next one."""

    def __init__(self, idle: list[Connection], patience: float) -> None:
        self._idle, self._patience = idle, patience
        self._done: Done | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def ask(self, request: bytes, done: Done) -> None:
        self._data, self._done = b"", done
        self._transport.write(request)
        self._timer = asyncio.get_running_loop().call_later(self._patience, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) >= length:
            if b"connection: close" not in head.lower():
                self._idle.append(self)
            self._end(int(head.split()[1]), body)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._idle:
            self._idle.remove(self)
        self._end(0, b"")

    def close(self) -> None:
        self._transport.close()

    def _end(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._timer.cancel()
            done(status, body)


class Clients:
    """Asks on an idle connection, or on a new one. `waiting`: requests without an answer so far."""

    def __init__(self, url: str, patience: float) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address, self._patience, self.waiting = (host, int(port)), patience, 0
        self._idle: list[Connection] = []
        self._all: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, request: bytes, done: Done) -> None:
        self.waiting += 1

        def end(status: int, body: bytes) -> None:
            self.waiting -= 1
            done(status, body)

        if self._idle:
            self._idle.pop().ask(request, end)
        else:
            self._tasks.add(task := asyncio.create_task(self._ask_anew(request, end)))
            task.add_done_callback(self._tasks.discard)

    async def _ask_anew(self, request: bytes, end: Done) -> None:
        make = partial(Connection, self._idle, self._patience)
        try:
            connecting = asyncio.get_running_loop().create_connection(make, *self._address)
            _, connection = await asyncio.wait_for(connecting, self._patience)
        except (OSError, TimeoutError):
            end(0, b"")
            return
        self._all.append(connection)
        connection.ask(request, end)

    async def close(self, until: float) -> None:
        """Close all connections once nothing is waited for, or at this time."""
        while self.waiting and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for connection in self._all:
            connection.close()


def offer(url: str, load: Sequence[tuple[float, str, bytes]], begin: float) -> list[Reached]:
    """Send requests (time, name, bytes) at their times after `begin`, on the machine's monotonic clock."""

    async def send_all() -> list[Reached]:
        clients, rows = Clients(url, PATIENCE), list[Reached]()
        for due, name, request in load:
            wait = begin + due - time.monotonic()
            if wait > 0 or len(rows) % 16 == 0:
                await asyncio.sleep(max(0.0, wait))
            began = time.monotonic()
            rows.append(Reached(name, due, began - begin - due))
            clients.ask(request, partial(rows[-1].end, began))
        await clients.close(time.monotonic() + PATIENCE)
        return rows

    gc.disable()
    try:
        return asyncio.run(send_all())
    finally:
        gc.enable()


def saturate(url: str, request: bytes, connections: int, seconds: float, patience: float = PATIENCE) -> list[int]:
    """Return the statuses of the answers while so many requests are always on their way."""

    async def ask_all() -> list[int]:
        clients, statuses, end = Clients(url, patience), list[int](), time.monotonic() + seconds

        def ask_again(status: int, _body: bytes) -> None:
            statuses.append(status)
            if time.monotonic() < end:
                clients.ask(request, ask_again)

        for _ in range(connections):
            clients.ask(request, ask_again)
        await asyncio.sleep(seconds)
        await clients.close(end + patience)
        return statuses

    return asyncio.run(ask_all())


def take_a_core() -> None:
    """Keep to the last core, where there are two."""
    if len(cores := sorted(os.sched_getaffinity(0))) > 1:
        os.sched_setaffinity(0, cores[-1:])


def leave_a_core(supervisor: int) -> None:
    """Keep a service, all its processes and threads, off the core of the clients, where there are two."""
    if len(cores := sorted(os.sched_getaffinity(0))) < 2:
        return
    for process in (family := psutil.Process(supervisor), *family.children(recursive=True)):
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores[:-1])


@dataclass(frozen=True, slots=True)
class Answers:
    """Of one rate: how many were in time, and how many said `on_time` although the client had them too late."""

    sent: int
    useful: int
    answered: int
    false: int
    refused: int
    lag: float  # most seconds that a request was sent too late


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
    url: str,
    request: bytes,
    deadline: float,
    seconds: float,
    rounds: int,
    times: Sequence[int],
    rates: Sequence[float] = (),
) -> Overload:
    """Look for the rate at which most answers are in time, among these or anew, then offer that and more in turns."""
    result = Overload(seconds)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=take_a_core) as pool:
        pool.submit(offer, url, [], 0.0).result()  # it has imported everything

        def offer_at(rate: float, what: str) -> Answers:
            load = [(float(at), "", request) for at in poisson(rate, seconds, np.random.default_rng(int(rate)))]
            rows = pool.submit(offer, url, load, time.monotonic() + 0.1).result()
            good = [row for row in rows if row.status == 200]
            late = [row for row in good if row.seconds > deadline]
            refused = sum(row.status not in (0, 200) for row in rows)
            said, lag = sum(row.on_time for row in late), max(row.lag for row in rows)
            answers = Answers(len(rows), len(good) - len(late), len(good), said, refused, lag)
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
