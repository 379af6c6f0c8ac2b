"""Decodes an uploaded image file to the pixels that a backbone takes.

Only raster formats are accepted: PIL also "reads" PostScript, by running another program.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pliant.errors import InputError
from pliant.models.image import to_pixels

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
INLINE_BYTES = 64 * 1024  # larger files are decoded in a thread
INLINE_PIXELS = 256 * 256  # larger images are decoded in a thread

Pixels = NDArray[np.uint8]
T = TypeVar("T")


async def decode(body: bytes, size: int, max_pixels: int) -> Pixels:
    """Return the image as RGB uint8 [size, size, 3], resized bilinearly. Large images are decoded in a thread.

    Raises `InputError` for what is no image, and for one of more than `max_pixels`, before it is decoded.
    """
    image = _open(body, max_pixels)
    if len(body) <= INLINE_BYTES and image.width * image.height <= INLINE_PIXELS:
        return _pixels(image, size, max_pixels)
    return await asyncio.to_thread(_pixels, image, size, max_pixels)


def _open(body: bytes, max_pixels: int) -> Image.Image:
    image = _as_input_error(lambda: Image.open(io.BytesIO(body), formats=FORMATS), max_pixels)
    pixels = image.width * image.height
    if pixels > max_pixels:
        value = f"of {image.width} x {image.height} = {pixels} pixels"
        raise InputError("image", value, f"at most {max_pixels} pixels")
    return image


def _pixels(image: Image.Image, size: int, max_pixels: int) -> Pixels:
    return _as_input_error(lambda: to_pixels(image, size), max_pixels)


def _as_input_error(step: Callable[[], T], max_pixels: int) -> T:
    """Run a step of PIL. Raises `InputError` for any error: PIL's readers raise all kinds for invalid files."""
    try:
        return step()
    except Image.DecompressionBombError:
        raise InputError("image", "far too large", f"at most {max_pixels} pixels") from None
    except Exception as error:
        expected = f"a whole image in one of the formats {', '.join(FORMATS)} ({type(error).__name__})"
        raise InputError("image", "not readable", expected) from None
