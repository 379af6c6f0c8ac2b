"""Measures a task's accuracy at every gamma, on the profiling split (for planners) and the test split (for reports).

Knows no loader: `data` is an `ImageData` of training/data.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pliant.progress import Progress, silent
from pliant.tokens.artifact import FLOAT32, GAMMAS, Accuracies, Backbone, Task
from pliant.tokens.runtime import Execution, Payload, TokensRuntime

Index = NDArray[np.int64]


def profile(
    backbone: Backbone,
    task: Task,
    data: Any,
    device: str = "cpu",
    gammas: tuple[int, ...] = GAMMAS,
    progress: Progress = silent,
    limit: int | None = None,
    half: str | None = None,
) -> Task:
    """Return the task with its measured accuracies, on the first `limit` pictures of each split (None: on all).

    They are measured in float32, and in the precision `half` where one is given.
    """
    measured: list[dict[int, float]] = []
    precisions = (FLOAT32,) if half is None else (FLOAT32, half)
    for precision in precisions:
        runtime = TokensRuntime(backbone, task.backbone, [task], device, Execution(precision=precision))
        for split in (data.split.profiling, data.split.test):
            measured.append({})
            for gamma in gammas:
                measured[-1][gamma] = accuracy(runtime, task.name, data, split[:limit], gamma, backbone.image_size)
                progress(sum(map(len, measured)), 2 * len(precisions) * len(gammas))
    other = {} if half is None else {half: Accuracies(measured[2], measured[3])}
    return replace(task, accuracy=measured[0], test_accuracy=measured[1], half=other)


def accuracy(
    runtime: TokensRuntime, task: str, data: Any, rows: Index, gamma: int, size: int, batch: int = 64
) -> float:
    """Return the share of the pictures `rows` whose most probable class is their label."""
    return float(right(runtime, task, data, rows, gamma, size, batch).mean())


def right(
    runtime: TokensRuntime, task: str, data: Any, rows: Index, gamma: int, size: int, batch: int = 64
) -> NDArray[np.bool_]:
    """Return of each of the pictures `rows` whether its most probable class is its label."""
    classes: list[int] = []
    for start in range(0, len(rows), batch):
        index = rows[start : start + batch]
        run = runtime.run(gamma, [Payload(task, image) for image in data.images.batch(index, size)])
        classes += [int(np.argmax(probabilities)) for probabilities in run.probabilities]
    right_R: NDArray[np.bool_] = np.array(classes) == data.labels[rows]
    return right_R
