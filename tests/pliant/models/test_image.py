"""Pictures of every mode become the same kind of pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from pliant.models.image import MAX_PIXELS, decode, read, to_pixels

SHADES = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def file_of(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("JPEG", {"quality": 100}), ("WEBP", {"lossless": True})])
def test_a_picture_is_turned_as_pil_turns_it_by_its_exif(orientation, kind, options):
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", orientation
    body = file_of(Image.fromarray(SHADES), kind, exif=exif, **options)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(body)))
    assert upright.size == ((9, 6) if orientation <= 4 else (6, 9))
    assert np.array_equal(np.asarray(read(body, MAX_PIXELS)), np.asarray(upright.convert("RGB")))
    assert np.array_equal(decode(body, 9, MAX_PIXELS), to_pixels(upright, 9))


def test_what_is_transparent_is_white_and_what_is_half_so_is_mixed_with_it():
    drawn = np.array([[[200, 0, 0, 255], [200, 0, 0, 0]], [[0, 0, 0, 51], [10, 20, 30, 255]]], np.uint8)
    seen = [[[200, 0, 0], [255, 255, 255]], [[204, 204, 204], [10, 20, 30]]]
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True})):
        assert decode(file_of(Image.fromarray(drawn), kind, **options), 2, MAX_PIXELS).tolist() == seen
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    palette.putpalette([9, 9, 9, 7, 8, 9])
    for kind in ("PNG", "GIF"):
        pixels = np.asarray(read(file_of(palette, kind, transparency=0), MAX_PIXELS).convert("RGB"))
        assert pixels.tolist() == [[[255, 255, 255], [7, 8, 9]]]


def test_sixteen_bits_a_pixel_keep_their_shades():
    """PIL's own conversion makes everything above 255 of 65,535 white."""
    deep = np.array([[0, 0x4000], [0x8000, 0xFFFF]], dtype=np.uint16)
    assert to_pixels(Image.fromarray(deep), 2)[..., 0].tolist() == [[0, 0x40], [0x80, 0xFF]]
