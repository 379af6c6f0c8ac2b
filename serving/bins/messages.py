"""What passes between the bins service and its device processes. Plain values: the service needs no torch for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from serving.workers.device_plan import BuildPlan, DevicePlan

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
class BinsBuild(BuildPlan):
    """How a device process makes its runtimes; called there. A launch's setting counts the shapes of all streams."""

    BUILDER: ClassVar[str] = "serving.bins.device:build"

    streams: tuple[StreamBuild, ...]
    placement: str  # one of pliant.bins.artifact.PLACEMENTS
    first: int | None  # under "single" the setting whose length is loaded at the start
    plan: DevicePlan
