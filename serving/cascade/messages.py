"""What passes between the cascade service and its device processes. Plain values: the service needs no torch for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from serving.workers.device_plan import BuildPlan, DevicePlan

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""One text as a level reads it: token numbers [N] and which of the two texts each belongs to [N]."""

Output = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Logits [K], and the importance of every token [N] where a candidate of the task prunes by it."""


@dataclass(frozen=True, slots=True)
class ModelBuild:
    """One classifier to load. `number` is a launch's setting."""

    number: int
    folder: Path
    digest: str
    importance: bool


@dataclass(frozen=True, slots=True)
class CascadeBuild(BuildPlan):
    """How a device process makes its models; called there."""

    BUILDER: ClassVar[str] = "serving.cascade.device:build"

    models: tuple[ModelBuild, ...]
    plan: DevicePlan
