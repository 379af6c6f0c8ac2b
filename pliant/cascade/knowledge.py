"""What the cascade's scheduler knows: models with their latencies and workers, and the paths through them by task.

Models are numbered through all levels of all tasks, in order. That number is a launch's `setting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.cascade.artifact import Candidate, Cascade
from pliant.errors import InputError
from pliant.latency import LatencyTable


@dataclass(frozen=True, slots=True)
class Model:
    """One level of one task. The settings of `latency` are tokens."""

    latency: LatencyTable
    workers: tuple[int, ...]  # the workers that have it loaded


@dataclass(frozen=True, slots=True)
class Path:
    """One candidate: the numbers of its models in order, and the accuracy of the first one alone.

    `shares`: of requests that run each model; `instead`: the candidate that is the last model alone and promises no less.
    """

    models: tuple[int, ...]
    accuracy: float
    shares: tuple[float, ...] = ()
    instead: int | None = None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """All models, and by task its paths: path i is candidate i."""

    models: tuple[Model, ...]
    tasks: Mapping[str, tuple[Path, ...]]

    def check(self, workers: int) -> None:
        """Raises `InputError` if a path names an unknown model, or a model an unknown worker or none."""
        for number, model in enumerate(self.models):
            if not model.workers or not all(0 <= w < workers for w in model.workers):
                raise InputError(f"workers of model {number}", model.workers, f"some of 0 to {workers - 1}")
        for task, paths in self.tasks.items():
            for path in paths:
                if not path.models or not all(0 <= m < len(self.models) for m in path.models):
                    raise InputError(f"models of {task}", path.models, f"some of 0 to {len(self.models) - 1}")


def numbers(cascades: Sequence[Cascade]) -> dict[tuple[str, int], int]:
    """Return (task, level) -> number of the model."""
    pairs = [(cascade.task, level) for cascade in cascades for level in range(len(cascade.levels))]
    return {pair: number for number, pair in enumerate(pairs)}


def placement(levels: int, workers: int, own: bool) -> list[tuple[int, ...]]:
    """Return the workers of each level: all, or with `own` one for each, where the last one has all larger levels."""
    if not own:
        return [tuple(range(workers))] * levels
    return [(min(level, workers - 1),) for level in range(levels)]


def knowledge(cascades: Sequence[Cascade], workers: int = 1, own: bool = False) -> Knowledge:
    """Return what stored artifacts say. A level that some candidate prunes by takes as long as with importance."""
    number_of = numbers(cascades)
    models: list[Model] = []
    tasks = {}
    for cascade in cascades:
        workers_of = placement(len(cascade.levels), workers, own)
        pruning = prunes(cascade)
        for level, profile in enumerate(cascade.levels):
            table = profile.importance if level in pruning and profile.importance else profile.latency
            models.append(Model(table, workers_of[level]))
        tasks[cascade.task] = tuple(
            Path(
                tuple(number_of[cascade.task, level] for level in candidate.levels),
                cascade.levels[candidate.levels[0]].accuracy,
                candidate.shares,
                None if own else _instead(cascade, candidate),  # else the last one spares no device of the first
            )
            for candidate in cascade.candidates
        )
    return Knowledge(tuple(models), tasks)


def _instead(cascade: Cascade, candidate: Candidate) -> int | None:
    alone = (candidate.levels[-1],)
    able = (n for n, other in enumerate(cascade.candidates) if other.levels == alone != candidate.levels)
    return next((n for n in able if cascade.candidates[n].promised >= candidate.promised), None)


def prunes(cascade: Cascade) -> set[int]:
    """Return the levels whose attention importance some candidate needs."""
    return {
        level
        for candidate in cascade.candidates
        for level, gate in zip(candidate.levels, candidate.gates, strict=False)
        if gate.pruning.rule != "none"
    }
