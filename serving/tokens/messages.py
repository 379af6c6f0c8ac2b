"""What passes between the service and its device process. Plain values: the service need not import torch for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from serving.tokens.catalog import ServedTask
from serving.workers.device_plan import BuildPlan, DevicePlan

Image = tuple[str, NDArray[np.uint8]]
"""A task's name and an image [size, size, 3], of the size that was served when it arrived."""

Output = tuple[str, str, NDArray[np.float32]]
"""The digest of the task that answered (its name, where a variant did), the model's digest, and the probabilities."""


@dataclass(frozen=True, slots=True)
class TokensBuild(BuildPlan):
    """How the device process makes its model; called there."""

    BUILDER: ClassVar[str] = "serving.tokens.device:build"

    folder: Path
    digest: str
    tasks: tuple[ServedTask, ...]
    gammas: tuple[int, ...]
    plan: DevicePlan


@dataclass(frozen=True, slots=True)
class VariantsBuild(BuildPlan):
    """The same for variants, of which the first is loaded to begin with."""

    BUILDER: ClassVar[str] = "serving.tokens.variants_device:build"

    variants: tuple[tuple[Path, str], ...]  # folder and digest
    plan: DevicePlan
