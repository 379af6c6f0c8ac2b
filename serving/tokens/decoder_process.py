"""The process that decodes large images: each message is a file, with the size and the pixels at most.

Its memory is limited, so that no image takes more.
"""

from __future__ import annotations

import resource
import socket
from pathlib import Path
from typing import IO, Any

from pliant.errors import InputError
from serving.tokens.images import decode, pixel_passes
from serving.workers.helper_process import help_out

MEMORY = 256 * 1024 * 1024  # bytes beyond what the process has when it starts
DATA_FIELD = 5  # of /proc/self/statm: pages of data


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Decode images until the parent closes the socket."""
    _limit_memory()
    help_out(channel, incoming, _answer)


def _answer(body: bytes, size: int, max_pixels: int) -> Any:
    try:
        pixel_passes(body, max_pixels)
        return decode(body, size, max_pixels)
    except InputError as error:
        return error


def _limit_memory() -> None:
    """Limit the process's data, where the system says how much there is already."""
    statm = Path("/proc/self/statm")
    if statm.is_file():
        present = int(statm.read_text().split()[DATA_FIELD]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_DATA, (present + MEMORY, resource.RLIM_INFINITY))
