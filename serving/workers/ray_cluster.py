"""What is said of a Ray cluster without Ray: the resources that a device needs on a node, and whether anything listens."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from pliant.errors import WorkerError

REACH_LIMIT = 5.0  # seconds; Ray itself would try for minutes


@dataclass(frozen=True, slots=True)
class Resources:
    """The resources of one device, as Ray counts them. A device sees only the GPUs that Ray gives it."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    custom: Mapping[str, float] = field(default_factory=dict)  # other resources by name, such as a kind of accelerator

    def __str__(self) -> str:
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.custom}
        return " and ".join(f"{amount:g} {name}" for name, amount in named.items() if amount) or "nothing"


def check_reachable(address: str) -> None:
    """Raise `WorkerError` if nothing listens at `address`, host:port; an address without a port passes."""
    host, separator, port = address.rpartition(":")
    if not separator:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_LIMIT).close()
    except (OSError, ValueError) as error:
        raise WorkerError(f"no Ray cluster answers at {address}: {error}") from None
