"""Decodes an uploaded image file to the pixels that a backbone takes, and says beforehand how much work that is.

Only formats whose work is bounded by their size are accepted: not PostScript, which PIL reads by running another program,
nor those that PIL decodes in Python. What PIL does in Python to read a file's parts is bounded too: by how often it may
read from the file, and by how many parts it decompresses.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from pliant.errors import InputError
from pliant.models.image import to_pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SCANS = 100  # of a JPEG; a progressive one has about ten, and each is a pass over all pixels
SCAN = b"\xff\xda"  # begins a scan; among a scan's own bytes 0xff is always followed by 0
TEXT_BYTES = 1 << 20  # of all texts in a PNG together, which are decompressed when it is opened
PNG = b"\x89PNG\r\n\x1a\n"  # begins a PNG
COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")  # parts of a PNG of up to `TEXT_BYTES` each when it is opened, about 1 ms
COMPRESSED_PARTS = 16  # a picture of a camera or an editor has one or two
READS = 1000  # of any file
BYTES_A_READ = 2048  # of a file that allow one more: PIL reads a PNG's usual pieces of 8 KiB in three
EXIF, NO_EXIF = b"Exif\x00\x00", b"exif\x00\x00"

Pixels = NDArray[np.uint8]
T = TypeVar("T")

PngImagePlugin.MAX_TEXT_MEMORY = TEXT_BYTES


def pixel_passes(body: bytes, max_pixels: int) -> int:
    """Return how many pixels decoding the file visits, by its header: its size, for a JPEG times its scans.

    Raises `InputError` for what is no image, and for one of more than `max_pixels` or `SCANS`.
    """
    image = _open(body, max_pixels)
    scans = body.count(SCAN) if image.format == "JPEG" else 1
    if scans > SCANS:
        raise InputError("image", f"a JPEG of {scans} scans", f"of at most {SCANS} scans")
    return image.width * image.height * max(1, scans)


def decode(body: bytes, size: int, max_pixels: int) -> Pixels:
    """Return the image as RGB uint8 [size, size, 3], resized bilinearly. Raises as `pixel_passes`."""
    image = _open(body, max_pixels)
    return _as_input_error(lambda: to_pixels(image, size), max_pixels)


class _File(io.BytesIO):
    """A file that can be read so many times; each time is a step of PIL in Python, which holds the interpreter's lock."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._left = READS + len(body) // BYTES_A_READ

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            limit = f"of at most {READS} parts, and one more for each {BYTES_A_READ} bytes"
            raise InputError("image", "a file of too many parts", limit)
        return super().read(size)


def _open(body: bytes, max_pixels: int) -> Image.Image:
    if body.startswith(PNG) and (parts := sum(map(body.count, COMPRESSED))) > COMPRESSED_PARTS:
        raise InputError("image", f"a PNG of {parts} compressed texts and profiles", f"of at most {COMPRESSED_PARTS}")
    # PIL reads all entries of a JPEG's Exif, up to 65,535 in Python, for the resolution, which nobody needs.
    file = _File(body.replace(EXIF, NO_EXIF))
    image = _as_input_error(lambda: Image.open(file, formats=FORMATS), max_pixels)
    if any(tile.codec_name in Image.DECODERS for tile in image.tile):  # those in Python
        raise InputError("image", f"a compressed {image.format}", "an uncompressed one, or of another format")
    pixels = image.width * image.height
    if pixels > max_pixels:
        value = f"of {image.width} x {image.height} = {pixels} pixels"
        raise InputError("image", value, f"at most {max_pixels} pixels")
    return image


def _as_input_error(step: Callable[[], T], max_pixels: int) -> T:
    """Run a step of PIL. Raises `InputError` for any error: PIL's readers raise all kinds for invalid files."""
    try:
        return step()
    except InputError:
        raise
    except Image.DecompressionBombError:
        raise InputError("image", "far too large", f"at most {max_pixels} pixels") from None
    except Exception as error:
        expected = f"a whole image in one of the formats {', '.join(FORMATS)} ({type(error).__name__})"
        raise InputError("image", "not readable", expected) from None
