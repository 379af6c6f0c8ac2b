"""Whether anything listens at an address of a Ray cluster, which Ray itself would try for minutes."""

from __future__ import annotations

import socket

from pliant.errors import WorkerError

REACH_LIMIT = 5.0  # seconds


def check_reachable(address: str) -> None:
    """Raise `WorkerError` if nothing listens at `address`, host:port; an address without a port passes."""
    host, separator, port = address.rpartition(":")
    if not separator:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT).close()
    except (OSError, ValueError) as error:
        raise WorkerError(f"no Ray cluster answers at {address}: {error}") from None
