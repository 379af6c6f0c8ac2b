"""Accuracy of a task at every gamma, on the profiling split (what planners use) and the test split (what reports quote)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pliant.progress import Progress, silent
from pliant.tokens.artifact import GAMMAS, Backbone, Task
from pliant.tokens.runtime import Payload, TokensRuntime
from training.data import ImageData, Index


def profile(
    backbone: Backbone,
    task: Task,
    data: ImageData,
    device: str = "cpu",
    gammas: tuple[int, ...] = GAMMAS,
    progress: Progress = silent,
) -> Task:
    """The task with its measured accuracies."""
    runtime = TokensRuntime(backbone, task.backbone, [task], device)
    measured: list[dict[int, float]] = []
    for part in (data.split.profiling, data.split.test):
        measured.append({})
        for gamma in gammas:
            measured[-1][gamma] = accuracy(runtime, task.name, data, part, gamma, backbone.image_size)
            progress(sum(map(len, measured)), 2 * len(gammas))
    return replace(task, accuracy=measured[0], test_accuracy=measured[1])


def accuracy(
    runtime: TokensRuntime, task: str, data: ImageData, part: Index, gamma: int, size: int, batch: int = 64
) -> float:
    """Share of `part` whose most probable class is its label."""
    right = 0
    for start in range(0, len(part), batch):
        index = part[start : start + batch]
        run = runtime.run(gamma, [Payload(task, image) for image in data.images.batch(index, size)])
        right += sum(int(np.argmax(p)) == label for p, label in zip(run.probabilities, data.labels[index], strict=True))
    return right / len(part)
