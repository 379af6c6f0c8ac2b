"""Reads a picture's file as the pixels that a backbone takes: one road for training, profiling, feedback and serving.

What a picture is: its first frame, turned upright by its Exif orientation (tag 0x0112), with what is transparent laid on
white; 16 bits a sample keep their upper 8. Numbers of CMYK and YCCK become RGB by PIL's formula, all others count as sRGB:
colour profiles are not applied.

Only formats whose work is bounded by their size are accepted: not PostScript, which PIL reads by running another program,
nor those that PIL decodes in Python. What PIL does in Python to read a file's parts is bounded too: by how often it may
read from the file, and by how many parts it decompresses.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, PngImagePlugin

from pliant.errors import InputError

MAX_PIXELS = 25_000_000  # of a picture that is trained on; a service's settings may say otherwise
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
SCANS = 100  # of a JPEG; a progressive one has about ten, and each is a pass over all pixels
SCAN = b"\xff\xda"  # begins a scan; among a scan's own bytes 0xff is always followed by 0
TEXT_BYTES = 1 << 20  # of all texts in a PNG together, which are decompressed when it is opened
PNG = b"\x89PNG\r\n\x1a\n"  # begins a PNG
COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")  # parts of a PNG of up to `TEXT_BYTES` each when it is opened, about 1 ms
COMPRESSED_PARTS = 16  # a picture of a camera or an editor has one or two
READS = 1000  # of any file
BYTES_A_READ = 2048  # of a file that allow one more: PIL reads a PNG's usual pieces of 8 KiB in three
JPEG, EXIF, NO_EXIF = b"\xff\xd8", b"Exif\x00\x00", b"exif\x00\x00"
JPEG_EXIF = re.compile(rb"\xff\xe1(..)Exif\x00\x00", re.DOTALL)  # a part of a JPEG, with its length
ORIENTATION, SHORT = 0x0112, 3  # a tag of Exif, and the type of its value
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns a picture upright, by its orientation."""

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
    """Return a file's picture as RGB uint8 [size, size, 3], resized bilinearly. Raises as `pixel_passes`."""
    return to_pixels(read(body, max_pixels), size)


def read(body: bytes, max_pixels: int) -> Image.Image:
    """Return a file's picture, upright, in RGB or grey and in its own size. Raises as `pixel_passes`."""
    image = _open(body, max_pixels)
    _as_input_error(image.load, max_pixels)

    def upright() -> Image.Image:
        opaque, orientation = _opaque(image), _orientation(body, image)
        return opaque.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else opaque

    return _as_input_error(upright, max_pixels)


def to_pixels(image: Image.Image, size: int) -> Pixels:
    """Return RGB pixels, uint8 [size, size, 3], resized bilinearly without keeping the proportions."""
    resized = _opaque(image).convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.uint8)


def _opaque(image: Image.Image) -> Image.Image:
    """Return the image in 8 bits a sample, laid on white where it is transparent."""
    if image.mode.startswith("I;16"):  # PIL's own conversion would clip it at 255
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise InputError("image", "of 32 bits a sample", "of at most 16")
    if not image.has_transparency_data:
        return image if image.mode in ("L", "RGB") else image.convert("RGB")
    coloured, white = image.convert("RGBA"), Image.new("RGB", image.size, "white")
    white.paste(coloured, mask=coloured)
    return white


def _orientation(body: bytes, image: Image.Image) -> int:
    """Return the orientation that the Exif of an opened file says; 1, upright, where it says none.

    PIL would read all entries, up to 65,535 in Python.
    """
    if image.format == "JPEG":
        part = JPEG_EXIF.search(body)
        exif = body[part.end() :][: int.from_bytes(part[1], "big")] if part else b""
    else:
        exif = image.info.get("exif", b"").removeprefix(EXIF)
    order = {b"II*\x00": "<", b"MM\x00*": ">"}.get(exif[:4])
    if order is None:
        return 1
    start = int(np.frombuffer(exif, f"{order}u4", 1, 4)[0]) if len(exif) >= 8 else 0
    if not 8 <= start <= len(exif) - 2:
        return 1
    fields = ("tag", "u2"), ("type", "u2"), ("count", "u4"), ("value", "u2"), ("rest", "u2")
    entry = np.dtype([(name, order + kind) for name, kind in fields])
    count = min(int(np.frombuffer(exif, f"{order}u2", 1, start)[0]), (len(exif) - start - 2) // entry.itemsize)
    entries = np.frombuffer(exif, entry, count, start + 2)
    (places,) = np.nonzero((entries["tag"] == ORIENTATION) & (entries["type"] == SHORT) & (entries["count"] == 1))
    return int(entries["value"][places[0]]) if len(places) else 1


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
    # PIL reads all entries of a JPEG's Exif for the resolution, which nobody needs.
    file = _File(body.replace(EXIF, NO_EXIF) if body.startswith(JPEG) else body)
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
