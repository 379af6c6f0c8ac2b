"""Pictures of every mode become the same kind of pixels."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from pliant.models.image import to_pixels


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F"])
def test_every_mode_gives_rgb_bytes_of_the_size_asked_for(mode):
    pixels = to_pixels(Image.new(mode, (20, 7)), 16)
    assert (pixels.shape, pixels.dtype) == ((16, 16, 3), np.uint8)


def test_sixteen_bits_a_pixel_keep_their_shades():
    """PIL's own conversion makes everything above 255 of 65,535 white."""
    deep = np.array([[0, 0x4000], [0x8000, 0xFFFF]], dtype=np.uint16)
    assert to_pixels(Image.fromarray(deep), 2)[..., 0].tolist() == [[0, 0x40], [0x80, 0xFF]]


def test_a_picture_of_the_right_size_is_not_changed():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)
    assert np.array_equal(to_pixels(Image.fromarray(pixels), 9), pixels)
