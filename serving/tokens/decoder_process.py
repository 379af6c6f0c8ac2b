"""The process that decodes large images: reads (file, size, pixels at most), writes (pixels, None) or (None, fault).

Its memory is limited, so that no image takes more; a fault is the three arguments of an `InputError`.
"""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import IO

from pliant.errors import InputError
from serving.tokens.images import decode
from serving.workers.child_process import pack, receive

MEMORY = 256 * 1024 * 1024  # bytes beyond what the process has when it starts
DATA_FIELD = 5  # of /proc/self/statm: pages of data


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Decode images until the parent closes the socket."""
    _limit_memory()
    channel.sendall(b"!")  # ready
    while True:
        body, size, max_pixels = receive(incoming)
        try:
            answer: tuple[object, object] = decode(body, size, max_pixels), None
        except InputError as error:
            answer = None, (error.field, error.value, error.limit)
        channel.sendall(pack(answer))


def _limit_memory() -> None:
    """Limit the process's data, where the system says how much there is already."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        present = int(statm.read_text().split()[DATA_FIELD]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (present + MEMORY, resource.RLIM_INFINITY))
