"""What passes between the bins service and its device processes. Plain values: the service needs no torch for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from serving.device_plan import DevicePlan

if TYPE_CHECKING:
    from serving.bins_device import BinsModel

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""One text as its encoder reads it: token numbers [N] and which of the two texts each belongs to [N]."""

Output = NDArray[np.float32]
"""Logits [K] or an embedding [H]."""


@dataclass(frozen=True, slots=True)
class StreamBuild:
    """One encoder to load, and what it was compiled to."""

    folder: Path
    digest: str
    engine: str
    shapes: tuple[Shape, ...]
    compiled: Path  # folder of the files
    files: Mapping[str, str]  # name -> SHA-256


@dataclass(frozen=True, slots=True)
class BinsBuild:
    """How a device process makes its runtimes; called there. A launch's setting counts the shapes of all streams."""

    streams: tuple[StreamBuild, ...]
    placement: str  # one of pliant.bins.artifact.PLACEMENTS
    first: int | None  # under "single" the setting whose length is loaded at the start
    plan: DevicePlan

    def __call__(self) -> BinsModel:
        from serving.bins_device import build

        return build(self)
