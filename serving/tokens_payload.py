"""What passes between the service and its device process. Plain values: the service need not import torch for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from serving.device_plan import DevicePlan
from serving.tokens_catalog import ServedTask

if TYPE_CHECKING:
    from serving.tokens_device import TokensModel
    from serving.tokens_variants_device import VariantsModel

Image = tuple[str, NDArray[np.uint8]]
"""A task's name and an image [size, size, 3], of the size that was served when it arrived."""

Output = tuple[str, str, NDArray[np.float32]]
"""The digest of the task that answered (its name, where a variant did), the model's digest, and the probabilities."""


@dataclass(frozen=True, slots=True)
class TokensBuild:
    """How the device process makes its model; called there."""

    folder: Path
    digest: str
    tasks: tuple[ServedTask, ...]
    gammas: tuple[int, ...]
    plan: DevicePlan

    def __call__(self) -> TokensModel:
        from serving.tokens_device import build

        return build(self)


@dataclass(frozen=True, slots=True)
class VariantsBuild:
    """The same for variants, of which the first is loaded to begin with."""

    variants: tuple[tuple[Path, str], ...]  # folder and digest
    plan: DevicePlan

    def __call__(self) -> VariantsModel:
        from serving.tokens_variants_device import build

        return build(self)
