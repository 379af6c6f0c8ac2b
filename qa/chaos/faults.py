"""What goes wrong in a running service: each fault begins, lasts some seconds, and ends; drawn from a seed."""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import psutil

from pliant.serving.launch import Service
from qa.chaos.load import Clients
from qa.targets import say
from tests.fixtures.live import processes

SLOW_CLIENTS = 100
START = 3.0  # seconds in which a process that parses large bodies starts


@dataclass(frozen=True)
class Victim:
    """A service under chaos: its registry's database, clients with requests that may be left, and with large bodies."""

    service: Service
    database: Path
    clients: Clients
    large: Clients

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
                held += [process] if self.clients.address[1] in ports else []
        return max(held or [psutil.Process(self.service.process.pid)], key=lambda process: process.memory_info().rss)


def _devices(victim: Victim, draw: np.random.Generator) -> list[psutil.Process]:
    """Draw one of the processes that run models, if any: of packing those are its engine and its predictor."""
    devices = processes(victim.service) + processes(victim.service, "engine_process")
    return [devices[int(draw.integers(len(devices)))]] if devices else []


def each(processes: Iterable[psutil.Process], act: Callable[[psutil.Process], object]) -> None:
    """Do something to processes, some of which may have ended meanwhile."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            act(process)


@contextmanager
def killed_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    each(_devices(victim, draw), psutil.Process.kill)
    yield


@contextmanager
def stopped_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Hold a device still: it goes on in time, or is taken for hung."""
    held = _devices(victim, draw)
    each(held, psutil.Process.suspend)
    yield
    each(held, psutil.Process.resume)


@contextmanager
def killed_helper(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Kill the process that parses large bodies, often with a body in it; its client gets an answer all the same."""
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(asyncio.run, victim.large.ask())
        time.sleep(float(draw.uniform(0.0, START)))
        each(processes(victim.service, "json_body"), psutil.Process.kill)
        answer.result()
    yield


@contextmanager
def full_disk(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Let every write of the service's processes to a file fail, as on a full disk."""

    def limit(full: bool, process: psutil.Process) -> None:
        _, most = process.rlimit(resource.RLIMIT_FSIZE)
        process.rlimit(resource.RLIMIT_FSIZE, (0 if full else most, most))

    each(victim.family, partial(limit, True))
    try:
        yield
    finally:
        each(victim.family, partial(limit, False))  # also those that have started meanwhile


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
            connections.append(socket.create_connection(victim.clients.address, 5))
            connections[-1].sendall(victim.clients.request[: int(draw.integers(1, len(victim.clients.request)))])
    yield
    for connection in connections:
        connection.close()


@contextmanager
def clients_that_leave(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    for _ in range(SLOW_CLIENTS):
        with suppress(OSError), socket.create_connection(victim.clients.address, 5) as connection:
            connection.sendall(victim.clients.request)
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
