"""What goes wrong in a running service: each fault begins, lasts some seconds, and ends; drawn from a seed."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from serving.launch import Service
from tests.fixtures.attacks import say
from tests.fixtures.live import processes

SLOW_CLIENTS = 100


@dataclass(frozen=True)
class Victim:
    """A service under chaos: its registry's database, and a request to leave unanswered."""

    service: Service
    database: Path
    request: bytes

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.service.url.removeprefix("http://").split(":")
        return host, int(port)

    @property
    def main(self) -> psutil.Process:
        """The process that holds the event loop."""
        family = psutil.Process(self.service.process.pid).children(recursive=True)
        held = [process for process in family if process.is_running() and _listens(process, self.address[1])]
        return max(held or [psutil.Process(self.service.process.pid)], key=lambda process: process.memory_info().rss)


def _listens(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return any(sock.status == psutil.CONN_LISTEN and sock.laddr.port == port for sock in process.net_connections())
    return False


Fault = Callable[[Victim, np.random.Generator], contextlib.AbstractContextManager[None]]


def _device(victim: Victim, draw: np.random.Generator) -> psutil.Process | None:
    devices = processes(victim.service) or processes(victim.service, "engine")
    return devices[int(draw.integers(len(devices)))] if devices else None


@contextmanager
def killed_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    if (device := _device(victim, draw)) is not None:
        device.kill()
    yield


@contextmanager
def stopped_device(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Hold a device still: it goes on in time, or is taken for hung."""
    device = _device(victim, draw)
    with suppress(psutil.NoSuchProcess):
        if device is not None:
            device.suspend()
    yield
    with suppress(psutil.NoSuchProcess):
        if device is not None:
            device.resume()


@contextmanager
def killed_helper(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Kill a process that parses bodies or decodes images, if there is one."""
    helpers = processes(victim.service, "large_body") + processes(victim.service, "decoder_process")
    for helper in helpers:
        helper.send_signal(signal.SIGKILL)
    yield


@contextmanager
def full_disk(victim: Victim, draw: np.random.Generator) -> Iterator[None]:
    """Let every write of the service to a file fail, as on a full disk."""
    main = victim.main
    _, most = main.rlimit(resource.RLIMIT_FSIZE)
    main.rlimit(resource.RLIMIT_FSIZE, (0, most))
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            main.rlimit(resource.RLIMIT_FSIZE, (most, most))


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


FAULTS: tuple[Fault, ...] = (
    killed_device,
    stopped_device,
    killed_helper,
    full_disk,
    lost_registry,
    slow_sockets,
    clients_that_leave,
)


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
