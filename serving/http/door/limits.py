"""Limits of a connection and of its requests, before any of the app's own."""

from __future__ import annotations

import resource
from dataclasses import dataclass

NOFILE = 65_536
"""The most open files that a service asks its system for."""


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """Sizes in bytes, times in seconds."""

    head_bytes: int = 64 * 1024  # request line and headers together; also what a body may add besides its content
    headers: int = 100
    head_seconds: float = 10.0  # from a head's first byte until it is complete
    idle_seconds: float = (
        75.0  # that a connection may be idle: longer than clients and proxies keep theirs, usually 60 s
    )
    body_seconds: float = 60.0  # from a complete head to a complete body, and that an answer may wait for its reader
    pipelined: int = 16  # requests on a connection that wait for the answer of the first
    connections: int = 1024


def open_files() -> int:
    """Return how many files a process may open once it has raised its limit as far as the system lets it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return NOFILE if hard == resource.RLIM_INFINITY else min(NOFILE, hard)


def raise_open_files() -> int:
    """Raise this process's limit of open files to `open_files`, and return that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < open_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files(), hard))
    return open_files()


def most_connections(wanted: int, files: int) -> int:
    """Return how many connections may be open: at most half of the open files, as others are needed too."""
    return min(wanted, files // 2)
