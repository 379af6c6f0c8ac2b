"""From an uploaded file to the pixels a backbone takes. Knows image formats; knows nothing of HTTP or models.

Formats are a list of plain raster formats: PIL also "reads" PostScript, by running another programme on it.
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
INLINE_BYTES = 64 * 1024
INLINE_PIXELS = 256 * 256

Pixels = NDArray[np.uint8]
T = TypeVar("T")


async def decode(body: bytes, size: int, most_pixels: int) -> Pixels:
    """uint8 [size, size, 3]: RGB, resized bilinearly. Small images on the spot, large ones in a thread.

    Raises `InputError` for what is no image or has too many pixels; the pixels are counted before they are decoded.
    """
    image = _open(body, most_pixels)
    if len(body) <= INLINE_BYTES and image.width * image.height <= INLINE_PIXELS:
        return _pixels(image, size, most_pixels)
    return await asyncio.to_thread(_pixels, image, size, most_pixels)


def _open(body: bytes, most_pixels: int) -> Image.Image:
    image = _refuse_rubbish(lambda: Image.open(io.BytesIO(body), formats=FORMATS), most_pixels)
    pixels = image.width * image.height
    if pixels > most_pixels:
        found = f"of {image.width} x {image.height} = {pixels} pixels"
        raise InputError("image", found, f"at most {most_pixels} pixels")
    return image


def _pixels(image: Image.Image, size: int, most_pixels: int) -> Pixels:
    return _refuse_rubbish(lambda: to_pixels(image, size), most_pixels)


def _refuse_rubbish(step: Callable[[], T], most_pixels: int) -> T:
    """PIL's readers meet rubbish with errors of any type, and what is far too large with one of their own."""
    try:
        return step()
    except Image.DecompressionBombError:
        raise InputError("image", "far too large", f"at most {most_pixels} pixels") from None
    except Exception as error:
        expected = f"a whole image in one of the formats {', '.join(FORMATS)} ({type(error).__name__})"
        raise InputError("image", "not readable", expected) from None
