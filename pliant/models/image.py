"""Turns a decoded picture into the pixels that a backbone reads, alike in training, profiling and serving."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def to_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Return RGB pixels, uint8 [size, size, 3], resized bilinearly without keeping the proportions."""
    if image.mode.startswith("I;16"):  # 16 bits a pixel, which PIL's own conversion would clip at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.uint8)
