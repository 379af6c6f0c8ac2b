"""What the watch sees of an answer of tokens: class, confidence, and the statistics of some of the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
from numpy.typing import NDArray

from pliant.serving.watch.seen import Seen
from pliant.serving.watch.streams import CONFIDENCES, confidence_of, labels, numbers
from pliant.watch.binning import linear, logarithmic

EVERY = 4  # pictures, of which one is looked at: that takes some 30 microseconds, and up to 70 for 224 x 224
LINES = 64  # rows, and columns, that are looked at, or up to twice as many: all of 224 x 224 took 400 microseconds
BRIGHTNESS, SHARPNESS = linear(0, 255), logarithmic(0.1, 100)


class TokensWatch:
    """Counts answers in `seen`."""

    def __init__(self, seen: Seen, burn_in: int) -> None:
        self._seen, self._burn_in, self._number = seen, burn_in, count()
        self._confidences = numbers(CONFIDENCES, burn_in)
        self._brightness, self._sharpness = numbers(BRIGHTNESS, burn_in), numbers(SHARPNESS, burn_in)

    def count(self, task: str, shares: Mapping[str, float], label: str, pixels: NDArray[np.uint8]) -> None:
        """Count one answer: the probabilities of the classes, the most probable one, and the picture [H, W, 3]."""
        if not self._seen.takes():
            return
        classes = tuple(shares)
        self._seen.label(f"class of {task}", classes.index(label), labels(classes, self._burn_in))
        self._seen.number(confidence_of(task), shares[label], self._confidences)
        if next(self._number) % EVERY == 0:
            brightness, sharpness = statistics(pixels)
            self._seen.number(f"brightness of {task}", brightness, self._brightness)
            self._seen.number(f"sharpness of {task}", sharpness, self._sharpness)


def statistics(pixels_HW3: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the mean brightness (0 to 255) and the mean difference of neighbours, which blur lowers and noise raises.

    Both are of green. Of large pictures they are those of every second, third and so on row and column, whole ones: which
    pixels are neighbours does not depend on the size.
    """
    step = max(1, max(pixels_HW3.shape[:2]) // LINES)
    green_HW = pixels_HW3[..., 1]
    rows_hW, columns_Hw = green_HW[::step].astype(np.int16), green_HW[:, ::step].astype(np.int16)
    across = np.abs(np.diff(rows_hW, axis=1)).mean()
    down = np.abs(np.diff(columns_Hw, axis=0)).mean()
    return float(rows_hW.mean()), float((across + down) / 2)
