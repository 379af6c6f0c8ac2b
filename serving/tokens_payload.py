"""What travels between the service and its device process. Plain values: the service need not import torch for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from serving.tokens_catalog import ServedTask

if TYPE_CHECKING:
    from serving.tokens_device import TokensModel

Image = tuple[str, NDArray[np.uint8]]
"""A task's name and an image [size, size, 3]."""

Output = tuple[str, NDArray[np.float32]]
"""The digest of the task that answered, and the probabilities of its classes."""


@dataclass(frozen=True, slots=True)
class TokensBuild:
    """How the device process makes its model; called there."""

    folder: Path
    digest: str
    tasks: tuple[ServedTask, ...]
    device: str
    threads: int | None
    profiled_on: str | None  # the device class to insist on
    gammas: tuple[int, ...]
    warm_batches: tuple[int, ...]

    def __call__(self) -> TokensModel:
        from serving.tokens_device import build

        return build(self)
