"""The process that decodes large images: each message is a file, with the size and the pixels at most.

Its memory is limited, so that no image takes more.
"""

from __future__ import annotations

import socket
from typing import IO, Any

from pliant.errors import InputError
from pliant.models.image import decode, pixel_passes
from pliant.serving.workers.helper_process import help_out, limit_memory

MEMORY = 256 * 1024 * 1024  # bytes beyond what the process has when it starts


def main(channel: socket.socket, incoming: IO[bytes]) -> None:
    """Decode images until the parent closes the socket."""
    limit_memory(MEMORY)
    help_out(channel, incoming, _answer)


def _answer(body: bytes, size: int, max_pixels: int) -> Any:
    try:
        pixel_passes(body, max_pixels)
        return decode(body, size, max_pixels)
    except InputError as error:
        return error
