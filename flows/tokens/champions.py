"""The champion of the tokens system in the registry: a backbone, the tasks trained on it, and its profile.

Where labelled pictures are tested with, its tasks are measured on the rows that the challenger is judged by: the accuracies
that it was published with are of another night's, and would compare two sets of pictures instead of two models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

import pliant.profiling.tokens.accuracy
from pliant.device import threads
from pliant.errors import InputError, RegistryError
from pliant.flows.champions import fetch, load_champions
from pliant.flows.release import open_registry, retried
from pliant.flows.settings import Settings
from pliant.flows.stage import Notes, Run, Stage
from pliant.flows.tokens.config import TokensFlowConfig
from pliant.flows.tokens.stages import Bundle
from pliant.precision import check_precision
from pliant.progress import Progress
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PROFILE, TOKENS_TASK
from pliant.tokens.artifact import FLOAT32, Backbone, Profile, Task
from pliant.training.data import ImageData
from pliant.training.tokens.labelled import is_joined


def load_champion(settings: Settings) -> Bundle | None:
    """Return what is served now; None before the first release."""
    registry = open_registry(settings, "tokens")
    if not registry.exists() or retried(lambda: registry.version(TOKENS_BACKBONE)) is None:
        return None
    backbone, _, tasks = champion_models(registry)
    profile = fetch(registry, Profile, TOKENS_PROFILE)[0]
    return Bundle(backbone, tuple(task.served_in(profile.precision) for task in tasks), profile)


def task_digest(settings: Settings, name: str) -> str:
    """Return the digest of the champion task of this name. Raises `RegistryError` where there is none."""
    registry = open_registry(settings, "tokens")
    published = retried(lambda: registry.version(TOKENS_TASK + name))
    if published is None:
        raise RegistryError(f"the registry holds no champion of {TOKENS_TASK}{name}")
    return published.digest


def champion_models(registry: MlflowRegistry) -> tuple[Backbone, str, list[Task]]:
    """Return the champion backbone, its digest and its tasks, without those that were made for another backbone."""
    backbone, published = fetch(registry, Backbone, TOKENS_BACKBONE)
    tasks = [champion.artifact for champion in load_champions(registry, Task).values()]
    return backbone, published.digest, [task for task in tasks if task.backbone == published.digest]


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
    gammas = tuple(sorted(task.test_accuracy.keys() - task.points.keys()))
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
    lambda config, champion, digest, data: {
        "task": digest,
        "data": data.fingerprint,
        "measured": config.measured,
        "precision": champion.profile.precision,
        "device": config.device,
    },
    folder="tokens/champion-{task.name}",
    bar="champion's {task.name}",
    run="champion-{task.name}",
    code=(measure, ImageData),
    measured=True,
)


def comparable(
    run: Run, config: TokensFlowConfig, champion: Bundle, loaded: Sequence[ImageData], digest_of: Callable[[str], str]
) -> Bundle:
    """Return the champion with accuracies of the rows that the challenger was tested on; `digest_of`: a task by its name."""
    anew = {
        task.name: run(CHAMPION, config, champion, task, digest_of(task.name), data).load()
        for task, data in to_measure(champion, loaded)
    }
    served = {name: task.served_in(champion.profile.precision if task.half else None) for name, task in anew.items()}
    return replace(champion, tasks=tuple(served.get(task.name, task) for task in champion.tasks))
