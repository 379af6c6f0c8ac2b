"""The process that decodes large images: each message is (file, size, pixels at most).

Its memory is limited, so that no image takes more.
"""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path
from typing import IO, Any

from pliant.errors import InputError
from serving.tokens.images import decode
from serving.workers.child_process import pack, receive
from serving.workers.helper_process import NICE

MEMORY = 256 * 1024 * 1024  # bytes beyond what the process has when it starts
DATA_FIELD = 5  # of /proc/self/statm: pages of data


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Decode images until the parent closes the socket."""
    os.nice(NICE)
    _limit_memory()
    channel.sendall(b"!")
    while True:
        channel.sendall(pack(_answer(*receive(incoming))))


def _answer(body: bytes, size: int, max_pixels: int) -> Any:
    try:
        return decode(body, size, max_pixels)
    except InputError as error:
        return error


def _limit_memory() -> None:
    """Limit the process's data, where the system says how much there is already."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        present = int(statm.read_text().split()[DATA_FIELD]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (present + MEMORY, resource.RLIM_INFINITY))
