"""Measures a task's accuracy at every setting, on the profiling split (for planners) and the test split (for reports).

What costs more than gamma 0, such as prompts, is compared with the best that does not, picture by picture.

Knows no loader: `data` is an `ImageData` of training/data.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from pliant.progress import Progress, silent
from pliant.tokens.artifact import FLOAT32, GAMMAS, Accuracies, Backbone, Head, Task
from pliant.tokens.points import forwards
from pliant.tokens.runtime import Execution, Payload, TokensRuntime, read_all, read_of

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

    Those are of these gammas, and of all its operating points. They are measured in float32, and in the precision `half`
    where one is given.
    """
    measured: list[dict[int, float]] = []
    precisions, groups = (FLOAT32,) if half is None else (FLOAT32, half), forwards(task.points)
    for precision in precisions:
        runtime = TokensRuntime(backbone, task.backbone, [task], device, Execution(precision=precision))
        for split in (data.split.profiling, data.split.test):
            measured.append({})
            parts = len(gammas) + len(groups)
            for gamma in gammas:
                measured[-1][gamma] = accuracy(runtime, task.name, data, split[:limit], gamma, backbone.image_size)
                progress((len(measured) - 1) * parts + len(measured[-1]), 2 * len(precisions) * parts)
            for done, (forward, of) in enumerate(groups.items(), len(gammas) + 1):
                rows, ends = split[:limit], sorted({point.blocks for point in of.values()})
                read = read_all(runtime, data.images, rows, backbone.image_size, forward, ends)
                for number, point in of.items():
                    right_N = _right(task.heads[number], read_of(read[point.blocks], point.reads), data.labels[rows])
                    measured[-1][number] = float(right_N.mean())
                progress((len(measured) - 1) * parts + done, 2 * len(precisions) * parts)
    other = {} if half is None else {half: Accuracies(measured[2], measured[3])}
    return replace(task, accuracy=measured[0], test_accuracy=measured[1], half=other)


def _right(head: Head, feature_NF: NDArray[np.float32], label_N: Index) -> NDArray[np.bool_]:
    right_N: NDArray[np.bool_] = (feature_NF @ head.weight.T + head.bias).argmax(1) == label_N
    return right_N


@dataclass(frozen=True, slots=True)
class Gain:
    """How many more of the same pictures one setting gets right than another, as a share, and an interval of that."""

    pictures: int
    gain: float
    low: float
    high: float


def compare(right_N: NDArray[np.bool_], other_N: NDArray[np.bool_], confidence: float) -> Gain:
    """Return the gain over another setting on the same pictures (McNemar 1947, exact).

    The interval is Clopper and Pearson's of the share of the pictures on which the two differ, so it excludes 0 just where
    the exact two-sided test rejects that both are right equally often.
    """
    won, lost = int((right_N & ~other_N).sum()), int((~right_N & other_N).sum())
    share, pictures = (won + lost) / len(right_N), len(right_N)
    if won + lost == 0:
        return Gain(pictures, 0.0, 0.0, 0.0)
    low, high = binomtest(won, won + lost).proportion_ci(confidence)
    return Gain(pictures, (won - lost) / pictures, (2 * low - 1) * share, (2 * high - 1) * share)


def right_of(
    backbone: Backbone, task: Task, data: Any, setting: int, device: str = "cpu", limit: int | None = None
) -> NDArray[np.bool_]:
    """Return of each picture of the profiling split whether the task is right at this setting, in float32."""
    rows, execution = data.split.profiling[:limit], Execution(precision=FLOAT32)
    points = {setting: task.points[setting]} if setting in task.points else {}
    runtime = TokensRuntime(backbone, task.backbone, [task], device, execution, points)
    return right(runtime, task.name, data, rows, setting, backbone.image_size)


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
