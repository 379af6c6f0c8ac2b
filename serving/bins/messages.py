"""The messages between the bins service and its device processes. They need no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pliant.bins.artifact import Shape
from pliant.serving.workers.devices import BuildPlan, DevicePlan


class UnpooledPayload(NamedTuple):
    """A text each token of which gets an embedding: ids and types as in `Payload` of the runtimes."""

    ids: NDArray[np.int32]
    types: NDArray[np.int8]


Output = NDArray[np.float32]
"""Logits [K] or an embedding [H]; of an `UnpooledPayload` the embeddings [N, H] of its tokens."""


@dataclass(frozen=True, slots=True)
class StreamBuild:
    """An encoder to load, and its compiled runtimes."""

    folder: Path
    digest: str
    engine: str
    shapes: tuple[Shape, ...]
    compiled: Path  # folder of the files
    files: Mapping[str, str]  # name -> SHA-256
    precision: str = "float32"  # one of pliant.precision.PRECISIONS


@dataclass(frozen=True, slots=True)
class BinsBuild(BuildPlan):
    """Makes the runtimes in a device process. A launch's setting numbers the shapes of all streams in order."""

    BUILDER: ClassVar[str] = "pliant.serving.bins.device:build"

    streams: tuple[StreamBuild, ...]
    placement: str  # one of pliant.bins.artifact.PLACEMENTS
    first: int | None  # under "single" the setting whose runtime is loaded at the start
    plan: DevicePlan
