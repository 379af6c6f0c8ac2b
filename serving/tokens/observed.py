"""What is observed of an answer of tokens: class, confidence, operating point (the gamma), and some pictures' statistics."""

from __future__ import annotations

from itertools import count

import numpy as np
from numpy.typing import NDArray

from pliant.outcomes.answered import Answered
from pliant.serving.loop.drift import Kind, Reading
from pliant.serving.loop.outcomes import Names
from pliant.serving.tokens.catalog import Origin
from pliant.watch.binning import linear, logarithmic

NAMES = Names("operating_point", None)
EVERY = 4  # pictures, of which one is looked at: that takes some 30 microseconds, and up to 70 for 224 x 224
LINES = 64  # rows, and columns, that are looked at, or up to twice as many: all of 224 x 224 took 400 microseconds
BRIGHTNESS, SHARPNESS = Kind(linear(0, 255)), Kind(logarithmic(0.1, 100))


def kind_of(task: str, origin: Origin, setting: int, tenant: str) -> Answered:
    """Return what the answers to a tenant share that these artifacts gave in a launch with this setting."""
    point, promised = str(setting), origin.promised.get(setting)
    return Answered(task, origin.version, point, point, "", 0.0, promised, classes=origin.classes, tenant=tenant)


class Pictures:
    """Looks at one of a few pictures."""

    def __init__(self) -> None:
        self._number = count()

    def readings(self, task: str, pixels_HW3: NDArray[np.uint8]) -> tuple[Reading, ...]:
        """Return what drift detection counts of a picture; nothing of most."""
        if next(self._number) % EVERY:
            return ()
        brightness, sharpness = statistics(pixels_HW3)
        return (
            Reading(f"brightness of {task}", brightness, BRIGHTNESS),
            Reading(f"sharpness of {task}", sharpness, SHARPNESS),
        )


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


def kept(pixels_HW3: NDArray[np.uint8]) -> tuple[str, bytes]:
    """Return form and bytes of a picture that is kept for its label: the pixels, without what else was in the file."""
    return " ".join([str(pixels_HW3.dtype), *map(str, pixels_HW3.shape)]), pixels_HW3.tobytes()
