"""From a decoded picture to the pixels that a backbone sees. The same for training, profiling and serving."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def to_pixels(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """RGB pixels uint8 [size, size, 3], resized bilinearly whatever the shape was."""
    if image.mode.startswith("I;16"):  # 16 bits a pixel: PIL's own conversion would clip at 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(resized, dtype=np.uint8)
