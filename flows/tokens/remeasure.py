"""Measures the champion's tasks on the rows that the challenger is judged by, where labelled pictures make these others.

The accuracies that a champion was published with are of the rows of its own night. Once labelled pictures are tested with,
those of another night would compare two sets of pictures instead of two models. Knows no Prefect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import pliant.profiling.tokens.accuracy
from pliant.device import threads
from pliant.errors import InputError
from pliant.flows.stage import Notes, Run, Stage
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import Bundle
from pliant.precision import check_precision
from pliant.progress import Progress
from pliant.tokens.artifact import FLOAT32, Task
from pliant.training.data import ImageData
from pliant.training.tokens.labelled import is_joined


def to_measure(champion: Bundle, loaded: Sequence[ImageData]) -> list[tuple[Task, ImageData]]:
    """Return the champion's tasks that are to be measured, each with the data that its challenger was tested on.

    Those are tasks of other data than the challenger's, where either has labelled pictures.
    """
    tasks = {task.name: task for task in champion.tasks}
    pairs = [(tasks[data.name], data) for data in loaded if data.name in tasks]
    return [
        (task, data)
        for task, data in pairs
        if task.data != data.fingerprint and (is_joined(task.data) or is_joined(data.fingerprint))
    ]


def _measured_of(config: TokensFlowConfig, champion: Bundle, digest: str, data: ImageData) -> dict[str, Any]:
    return {
        "task": digest,
        "data": data.fingerprint,
        "measured": config.measured,
        "precision": champion.profile.precision,
        "device": config.device,
    }


def measure(
    config: TokensFlowConfig, champion: Bundle, task: Task, digest: str, data: ImageData, progress: Progress
) -> tuple[Task, Notes]:
    """Measure a task of the champion at its gammas, in float32 and in the precision that it is served in.

    A champion of another class of device may be served in a precision that this one lacks: float32 stands for it then.
    """
    del digest  # which the key holds
    precision = champion.profile.precision
    half = None if precision in (None, FLOAT32) else precision
    if half is not None:
        try:
            check_precision(half, config.device)
        except InputError:
            half = None
    # Labels as places among the task's classes; -1 for a class that it does not have: it is never right.
    place = {name: number for number, name in enumerate(task.classes)}
    of_class = np.array([place.get(name, -1) for name in data.classes], np.int64)
    gammas = tuple(sorted(task.test_accuracy))
    with threads(config.threads):
        measured = pliant.profiling.tokens.accuracy.profile(
            champion.backbone,
            task,
            replace(data, labels=of_class[data.labels]),
            config.device,
            gammas,
            progress,
            config.measured,
            half,
        )
    return measured, {}


CHAMPION = Stage(
    "champion",
    Task,
    measure,
    _measured_of,
    folder="tokens/champion-{task.name}",
    bar="champion's {task.name}",
    run="champion-{task.name}",
    code=(measure, ImageData),
    measured=True,
)


def comparable(
    run: Run,
    config: TokensFlowConfig,
    champion: Bundle,
    loaded: Sequence[ImageData],
    digest_of: Callable[[str], str],
) -> Bundle:
    """Return the champion with accuracies of the rows that the challenger was tested on; `digest_of`: a task by its name."""
    anew = {
        task.name: run(CHAMPION, config, champion, task, digest_of(task.name), data).load()
        for task, data in to_measure(champion, loaded)
    }
    served = {name: task.served_in(champion.profile.precision if task.half else None) for name, task in anew.items()}
    return replace(champion, tasks=tuple(served.get(task.name, task) for task in champion.tasks))
