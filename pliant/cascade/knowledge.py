"""What the cascade's scheduler goes by: models with their latencies and workers, and per task the ways through them.

Models are numbered over tasks in order and levels in order; that number is a launch's setting. Plain frozen values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.cascade.artifact import Cascade
from pliant.errors import InputError
from pliant.latency import LatencyTable


@dataclass(frozen=True, slots=True)
class Model:
    """One level of one task. `latency`: settings are tokens."""

    latency: LatencyTable
    workers: tuple[int, ...]  # that have it loaded


@dataclass(frozen=True, slots=True)
class Path:
    """One candidate: its models in order, and the accuracy of the first alone."""

    models: tuple[int, ...]
    accuracy: float


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Path i of a task is its candidate i."""

    models: tuple[Model, ...]
    tasks: Mapping[str, tuple[Path, ...]]

    def check(self, workers: int) -> None:
        """Raises `InputError` where a path names no model, or a model no worker."""
        for number, model in enumerate(self.models):
            if not model.workers or not all(0 <= w < workers for w in model.workers):
                raise InputError(f"workers of model {number}", model.workers, f"some of 0 to {workers - 1}")
        for task, paths in self.tasks.items():
            for path in paths:
                if not path.models or not all(0 <= m < len(self.models) for m in path.models):
                    raise InputError(f"models of {task}", path.models, f"some of 0 to {len(self.models) - 1}")


def numbers(cascades: Sequence[Cascade]) -> dict[tuple[str, int], int]:
    """(task, level) -> number of the model."""
    pairs = [(cascade.task, level) for cascade in cascades for level in range(len(cascade.levels))]
    return {pair: number for number, pair in enumerate(pairs)}


def placement(levels: int, workers: int, own: bool) -> list[tuple[int, ...]]:
    """The workers of every level. `own`: a worker a level, the last one for all larger ones; else everywhere."""
    if not own:
        return [tuple(range(workers))] * levels
    return [(min(level, workers - 1),) for level in range(levels)]


def knowledge(cascades: Sequence[Cascade], workers: int = 1, own: bool = False) -> Knowledge:
    """What stored artifacts say. With importance a level is reckoned at what it then takes."""
    number = numbers(cascades)
    models: list[Model] = []
    tasks = {}
    for cascade in cascades:
        where = placement(len(cascade.levels), workers, own)
        pruning = prunes(cascade)
        for level, profile in enumerate(cascade.levels):
            table = profile.importance if level in pruning and profile.importance else profile.latency
            models.append(Model(table, where[level]))
        tasks[cascade.task] = tuple(
            Path(tuple(number[cascade.task, level] for level in one.levels), cascade.levels[one.levels[0]].accuracy)
            for one in cascade.candidates
        )
    return Knowledge(tuple(models), tasks)


def prunes(cascade: Cascade) -> set[int]:
    """Levels whose attention importance some candidate needs."""
    return {
        level
        for candidate in cascade.candidates
        for level, gate in zip(candidate.levels, candidate.gates, strict=False)
        if gate.pruning.rule != "none"
    }
