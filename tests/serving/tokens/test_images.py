"""Any raster image becomes RGB of the right size; anything else is an error before it costs much time."""

from __future__ import annotations

import asyncio
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from pliant.errors import InputError
from serving.tokens.images import decode


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(body: bytes, size: int = 16, most_pixels: int = 1_000_000):
    return asyncio.run(decode(body, size, most_pixels))


def gradient(mode: str) -> Image.Image:
    return Image.linear_gradient("L").convert(mode)


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return header + struct.pack(">I", 0) + b"IDAT"


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_every_mode_of_a_png_becomes_rgb_of_the_requested_size(mode):
    deep = Image.fromarray(np.asarray(gradient("L")).astype(np.uint16) * 257)
    pixels = decoded(encoded(deep if mode == "I;16" else gradient(mode)))
    assert pixels.dtype == np.uint8
    assert pixels.shape == (16, 16, 3)
    assert pixels[0].mean() < 30
    assert pixels[-1].mean() > 225


@pytest.mark.parametrize("kind", ["JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_every_format_is_read(kind):
    assert decoded(encoded(gradient("RGB"), kind)).shape == (16, 16, 3)


def test_an_image_of_the_right_size_keeps_every_pixel():
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert np.array_equal(decoded(encoded(Image.fromarray(pixels))), pixels)


def test_a_large_image_is_decoded_in_a_thread_with_the_same_result():
    small = decoded(encoded(gradient("RGB")))
    large = decoded(encoded(gradient("RGB").resize((800, 800))))
    assert np.abs(small.astype(int) - large).max() < 12


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_too_many_pixels_are_refused_from_the_header_alone():
    with pytest.raises(InputError, match="image is of 10000 x 10000 = 100000000 pixels, but must be at most 1000000"):
        decoded(png_header(10_000, 10_000))


def test_a_decompression_bomb_is_refused():
    with pytest.raises(InputError, match="image is far too large, but must be at most 1000000 pixels"):
        decoded(png_header(60_000, 60_000))


@pytest.mark.parametrize(
    "body", [b"", b"text", b"%!PS-Adobe-3.0 EPSF-3.0\n", encoded(gradient("RGB"))[:500], png_header(9, 9), b"\x00" * 99]
)
def test_what_is_no_whole_image_is_refused(body):
    with pytest.raises(InputError, match="image is not readable, but must be a whole image in one of the formats PNG"):
        decoded(body)
