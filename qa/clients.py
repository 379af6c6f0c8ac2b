"""Clients that each ask again when they were answered: honest ones, or a flood from a process of its own."""

from __future__ import annotations

import http.client
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

TIMEOUT = 30.0  # seconds that an honest client waits
SPAWN = multiprocessing.get_context("spawn")


@dataclass
class Clients:
    """Clients that each ask again when they were answered, on a connection that they keep.

    Of each answer: its status, 0 where none came; its seconds, None for a failure; and the reason of a failure.
    """

    connect: Callable[[], http.client.HTTPConnection]
    method: str
    path: str
    bodies: Iterator[bytes]
    headers: Mapping[str, str]
    statuses: list[int] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def ask_on(self, pause: float) -> None:
        connection = self.connect()
        while not self._stopped.wait(pause):
            began, status, reason = time.monotonic(), 0, ""
            try:
                status, content = self._ask(connection, next(self.bodies))
                reason = "" if status == 200 else f"{status} {content[:100]!r}"
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                reason = repr(error)
            self.statuses.append(status)
            self.seconds.append(None if reason else time.monotonic() - began)
            self.reasons += [reason] if reason else []
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
        with suppress(http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            return self._exchange(connection, body)
        connection.close()  # an idle connection may be closed at any time: every client library asks once more
        return self._exchange(connection, body)

    def _exchange(self, connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
        kind = {"content-type": "application/json"} if body else {}
        connection.request(self.method, self.path, body or None, {**kind, **self.headers})
        response = connection.getresponse()
        return response.status, response.read()

    @property
    def success(self) -> float:
        return sum(one is not None for one in self.seconds) / max(1, len(self.seconds))

    @property
    def p99(self) -> float:
        return float(np.quantile([one for one in self.seconds if one is not None] or [np.inf], 0.99))

    def stop(self) -> None:
        self._stopped.set()


@contextmanager
def asking(
    url: str,
    request: tuple[str, str, bytes | Sequence[bytes]],
    headers: Mapping[str, str] = {},
    clients: int = 4,
    pause: float = 0.05,
    timeout: float = TIMEOUT,
) -> Iterator[Clients]:
    """Clients as long as the context lasts. `request`: method, path, and a body or several, which are sent in turn."""
    method, path, body = request
    connect = partial(http.client.HTTPConnection, url.removeprefix("http://"), timeout=timeout)
    all_of_them = Clients(connect, method, path, cycle([body] if isinstance(body, bytes) else body), headers)
    threads = [threading.Thread(target=all_of_them.ask_on, args=(pause,)) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield all_of_them
    finally:
        all_of_them.stop()
        for thread in threads:
            thread.join(2 * timeout)


@contextmanager
def again_and_again(act: Callable[[], object], pause: float) -> Iterator[None]:
    """Act in a thread as long as the context lasts, with a pause between."""
    ended = threading.Event()

    def act_on() -> None:
        while not ended.wait(pause):
            act()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act_on)
        try:
            yield
        finally:
            ended.set()
        acting.result()


def flood(
    url: str, path: str, bodies: Sequence[bytes], headers: Mapping[str, str], seconds: float, clients: int
) -> Counter[int]:
    """Post bodies in turn, so many at once, for so many seconds; return the answers by status."""
    with asking(url, ("POST", path, bodies), headers, clients, 0.0, 60.0) as flooding:
        time.sleep(seconds)
    return Counter(flooding.statuses)


@contextmanager
def apart(count: int = 1, initializer: Callable[[], None] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes for clients, which have imported everything."""
    with ProcessPoolExecutor(count, SPAWN, initializer=initializer) as pool:
        list(pool.map(nap, [2.0] * count))  # in each of them
        yield pool


def nap(seconds: float) -> None:
    time.sleep(seconds)


@contextmanager
def flooding(*arguments: Any) -> Iterator[Future[Counter[int]]]:
    """Run `flood` in a process of its own, elsewhere; give its future."""
    with apart(initializer=elsewhere) as pool:
        yield pool.submit(flood, *arguments)


def elsewhere() -> None:
    """Let this process take only what others leave of this machine.

    Linux weighs a session's processes among themselves alone, and the session by its own niceness (sched(7), autogroups).
    """
    if os.getsid(0) != os.getpid():
        os.setsid()
    os.nice(19)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text("19", encoding="ascii")
