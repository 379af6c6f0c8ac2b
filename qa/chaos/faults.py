"""What goes wrong in a running service: each fault begins, lasts some seconds, and ends; drawn from a seed."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from pliant.serving.launch import Service
from qa.chaos.load import DECLARED, Counts, ask
from qa.targets import say
from tests.fixtures.live import processes

SLOW_CLIENTS = 100
START = 3.0  # seconds in which a process that parses large bodies starts
LARGE_DECLARED = DECLARED | {413}
"""Status codes of an answer to a large body: where its process was killed, it may have been too much for that."""


@dataclass(frozen=True)
class Victim:
    """A service under chaos: its registry's database, a request to leave unanswered, and one with a large body.

    `counts` are of the requests with large bodies.
    """

    service: Service
    database: Path
    request: bytes
    large: bytes
    counts: Counts = field(default_factory=lambda: Counts(LARGE_DECLARED))

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.service.url.removeprefix("http://").split(":")
        return host, int(port)

    @property
    def family(self) -> list[psutil.Process]:
        """The service's processes, without the one that started the others."""
        return psutil.Process(self.service.process.pid).children(recursive=True)

    @property
    def main(self) -> psutil.Process:
        """The process that holds the event loop."""
        held = []
        for process in self.family:
            with suppress(psutil.Error):
                sockets = process.net_connections()
                ports = [each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN]
                held += [process] if self.address[1] in ports else []
        return max(held or [psutil.Process(self.service.process.pid)], key=lambda process: process.memory_info().rss)


def _devices(victim: Victim, draw: np.random.Generator) -> list[psutil.Process]:
    """Draw one of the processes that run models, if any: of packing those are its engine and its predictor."""
    devices = processes(victim.service) + processes(victim.service, "engine_process")
    return [devices[int(draw.integers(len(devices)))]] if devices else []


@contextmanager
def killed_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    for device in _devices(victim, draw):
        with suppress(psutil.NoSuchProcess):
            device.kill()
    yield


@contextmanager
def stopped_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Hold a device still: it goes on in time, or is taken for hung."""
    held = _devices(victim, draw)
    for device in held:
        with suppress(psutil.NoSuchProcess):
            device.suspend()
    yield
    for device in held:
        with suppress(psutil.NoSuchProcess):
            device.resume()


@contextmanager
def killed_helper(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Kill the process that parses large bodies, often with a body in it; its client gets an answer all the same."""
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(asyncio.run, ask(victim.address, victim.large, victim.counts))
        time.sleep(float(draw.uniform(0.0, START)))
        for helper in processes(victim.service, "json_body"):
            with suppress(psutil.NoSuchProcess):
                helper.kill()
        answer.result()
    yield


@contextmanager
def full_disk(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Let every write of the service's processes to a file fail, as on a full disk."""

    def limit_files(full: bool) -> None:
        """Let files grow no more, or again; of a process that has started meanwhile, too."""
        for process in victim.family:
            with suppress(psutil.NoSuchProcess):
                _, most = process.rlimit(resource.RLIMIT_FSIZE)
                process.rlimit(resource.RLIMIT_FSIZE, (0 if full else most, most))

    limit_files(full=True)
    try:
        yield
    finally:
        limit_files(full=False)


@contextmanager
def lost_registry(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    aside = victim.database.with_suffix(".aside")
    victim.database.rename(aside)
    try:
        yield
    finally:
        aside.rename(victim.database)


@contextmanager
def slow_sockets(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Clients that send half a request, and nothing more."""
    connections = []
    for _ in range(SLOW_CLIENTS):
        with suppress(OSError):
            connections.append(socket.create_connection(victim.address, 5))
            connections[-1].sendall(victim.request[: int(draw.integers(1, len(victim.request)))])
    yield
    for connection in connections:
        connection.close()


@contextmanager
def clients_that_leave(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    for _ in range(SLOW_CLIENTS):
        with suppress(OSError), socket.create_connection(victim.address, 5) as connection:
            connection.sendall(victim.request)
            time.sleep(float(draw.exponential(0.01)))
    yield


FAULTS = (killed_device, stopped_device, killed_helper, full_disk, lost_registry, slow_sockets, clients_that_leave)


def strike(victim: Victim, seed: int, seconds: float, every: float = 10.0) -> int:
    """Let a fault happen every so many seconds, each for up to half of that; return how many did."""
    draw, count = np.random.default_rng(seed), 0
    end = time.monotonic() + seconds
    while (due := time.monotonic() + every) < end:
        fault = FAULTS[int(draw.integers(len(FAULTS)))]
        say(f"{fault.__name__.replace('_', ' ')}")
        with fault(victim, draw):
            time.sleep(float(draw.uniform(0.0, every / 2)))
        count += 1
        time.sleep(max(0.0, due - time.monotonic()))
    return count
