"""The messages between the cascade service and its device processes. They need no torch."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.serving.workers.devices import BuildPlan, DevicePlan

Payload = tuple[NDArray[np.int32], NDArray[np.int8]]
"""A text as a level reads it: token ids [N], and for each the text of a pair that it belongs to (0 or 1) [N]."""

Output = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""Logits [K], and the importance of every token [N] if a candidate of the task prunes by it."""


@dataclass(frozen=True, slots=True)
class ModelBuild:
    """A level to load: a classifier, or a part of one. `number` is a launch's setting.

    `folder`, `digest`: of the classifier, which is loaded once however many levels are parts of it. `importance`: also
    return the importance of tokens, which whole classifiers can. `precision`: of the weights, one of
    pliant.precision.PRECISIONS.
    """

    number: int
    folder: Path
    digest: str
    importance: bool
    precision: str = "float32"
    begin: int = 0  # layers of the classifier that an exit before it has run
    exit: Path | None = None  # folder of the exit at which it ends; None: ends as the classifier does
    exit_digest: str = ""


SHAPE_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
"""How many shapes of a layer oneDNN keeps compiled, and torch above it: 1,024 each unless these variables say less.

A text or batch of another length is another shape, of some 0.5 MB in each cache, so that a process grew for hours.
"""
SHAPES = 128
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGE_BLOCK = 4 * 1024 * 1024
"""Bytes from which a block is mapped apart and given back. glibc raises this limit with each large block that is freed.

Then the inputs and outputs of layers lie between what the caches keep, and what is freed around it stays with the process.
54 MB became 22 MB over 600 launches, for 3% of processor time; 1 MiB cost a sixth.
"""


@dataclass(frozen=True, slots=True)
class CascadeBuild(BuildPlan):
    """Makes the models in a device process, whose caches and free memory are bounded before torch is imported."""

    BUILDER: ClassVar[str] = "pliant.serving.cascade.device:build"

    models: tuple[ModelBuild, ...]
    plan: DevicePlan

    def __call__(self, *arguments: Any) -> Any:
        for name in SHAPE_CACHES:
            os.environ.setdefault(name, str(SHAPES))
        with suppress(AttributeError, OSError):  # where the system's allocator is not glibc's
            for limit in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
                ctypes.CDLL(None).mallopt(limit, LARGE_BLOCK)
        return BuildPlan.__call__(self, *arguments)
