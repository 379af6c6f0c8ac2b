"""The messages between the cascade service and its device processes. They need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from serving.workers.device_plan import BuildPlan, DevicePlan

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""A text as a level reads it: token ids [N], and for each the text of a pair that it belongs to (0 or 1) [N]."""

Output = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Logits [K], and the importance of every token [N] if a candidate of the task prunes by it."""


@dataclass(frozen=True, slots=True)
class ModelBuild:
    """A classifier to load. `number` is a launch's setting; `importance`: also return the importance of tokens."""

    number: int
    folder: Path
    digest: str
    importance: bool


@dataclass(frozen=True, slots=True)
class CascadeBuild(BuildPlan):
    """Makes the models in a device process."""

    BUILDER: ClassVar[str] = "serving.cascade.device:build"

    models: tuple[ModelBuild, ...]
    plan: DevicePlan
