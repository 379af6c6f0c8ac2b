"""The messages between the tokens service and its device process. They need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.serving.tokens.catalog import ServedTask
from pliant.serving.workers.devices import BuildPlan, DevicePlan

Image = tuple[str, NDArray[np.uint8]]
"""A task's name and an image [size, size, 3], of the size that was served when the request arrived."""

Output = tuple[str, str, NDArray[np.float32]]
"""The digest of the task, the digest of the model, and the probabilities."""


@dataclass(frozen=True, slots=True)
class TokensBuild(BuildPlan):
    """Makes the model in the device process."""

    BUILDER: ClassVar[str] = "pliant.serving.tokens.device:build"

    folder: Path
    digest: str
    tasks: tuple[ServedTask, ...]
    gammas: tuple[int, ...]
    plan: DevicePlan
    precision: str | None = None  # None: what the device prefers
