"""What the watch sees of an answer of tokens: class, confidence, and the statistics of some of the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from pliant.watch.binning import linear, logarithmic
from serving.watch.seen import Seen
from serving.watch.streams import CONFIDENCES, confidence_of, labels, numbers

EVERY = 4  # pictures, of which one is looked at: that takes some 50 microseconds, and more for large ones
STEP = 512  # pixels of a side, above which only every second one and so on is looked at
BRIGHTNESS, SHARPNESS = linear(0, 255), logarithmic(0.1, 100)


class TokensWatch:
    """Counts answers in `seen`."""

    def __init__(self, seen: Seen, burn_in: int) -> None:
        self._seen, self._burn_in, self._number = seen, burn_in, count()
        self._confidences = numbers(CONFIDENCES, burn_in)
        self._brightness, self._sharpness = numbers(BRIGHTNESS, burn_in), numbers(SHARPNESS, burn_in)

    def count(self, task: str, classes: Sequence[str], best: int, confidence: float, pixels: NDArray[np.uint8]) -> None:
        """Count one answer: the class's number, its probability, and the picture [H, W, 3]."""
        self._seen.label(f"class of {task}", best, labels(classes, self._burn_in))
        self._seen.number(confidence_of(task), confidence, self._confidences)
        if next(self._number) % EVERY == 0:
            brightness, sharpness = statistics(pixels)
            self._seen.number(f"brightness of {task}", brightness, self._brightness)
            self._seen.number(f"sharpness of {task}", sharpness, self._sharpness)


def statistics(pixels_HW3: NDArray[np.uint8]) -> tuple[float, float]:
    """Return the mean brightness (0 to 255) and the mean difference of neighbours, which blur lowers and noise raises."""
    step = max(1, max(pixels_HW3.shape[:2]) // STEP)
    green_HW = pixels_HW3[::step, ::step, 1].astype(np.float32)
    across, down = np.abs(np.diff(green_HW, axis=1)).mean(), np.abs(np.diff(green_HW, axis=0)).mean()
    return float(green_HW.mean()), float((across + down) / 2)
