"""What the cascade's scheduler knows: models with their latencies and workers, and the paths through them by task.

A model is a level, or what remains of it behind an exit; a bag is none, as the service's own process runs it before the
scheduler sees the request. Models are numbered through all levels of all tasks, in order. That number is a launch's
`setting`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pliant.cascade.artifact import BAG, EXIT, Bag, Candidate, Cascade, Exit, Level
from pliant.cascade.evaluate import done
from pliant.errors import ArtifactError, InputError
from pliant.latency import LatencyTable
from pliant.models.artifact import Classifier


@dataclass(frozen=True, slots=True)
class Model:
    """One level of one task. The settings of `latency` are tokens."""

    latency: LatencyTable
    workers: tuple[int, ...]  # the workers that have it loaded


@dataclass(frozen=True, slots=True)
class Path:
    """One candidate: the numbers of its models in order, and what the answer of the first one is worth.

    That is its accuracy alone; behind a bag 1, as the utility of a request counts what the bag leaves to win. `shares`: of
    the requests that run each model; `instead`: the candidate that is the last model alone and promises no less.
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
                if not all(0 <= m < len(self.models) for m in path.models):
                    raise InputError(f"models of {task}", path.models, f"some of 0 to {len(self.models) - 1}")


Number = tuple[str, int, int]
"""A task, a level, and how many layers of its trunk an exit before it has run."""


def numbers(cascades: Sequence[Cascade]) -> dict[Number, int]:
    """Return the number of each model."""
    keys = [
        (cascade.task, number, layers)
        for cascade in cascades
        for number, level in enumerate(cascade.levels)
        if level.kind != BAG
        for layers in (0, *(each.layers for each in level.resumed))
    ]
    return {key: number for number, key in enumerate(keys)}


def trunk_of(cascade: Cascade, levels: Sequence[Level], number: int) -> Classifier | Bag:
    """Return the classifier whose layers a level runs, or the bag. Raises `ArtifactError` where an exit's is missing."""
    level = levels[number]
    if not isinstance(level, Exit):
        return level
    for profile, other in zip(cascade.levels, levels, strict=True):
        if profile.classifier == level.large and isinstance(other, Classifier):
            return other
    raise ArtifactError(f"the exit {level.name} of {cascade.task} is on a classifier that is none of its levels")


def on_devices(cascade: Cascade, candidate: Candidate) -> tuple[Number, ...]:
    """Return the models of a candidate: all of its levels but a bag."""
    path = candidate.levels
    return tuple(
        (cascade.task, level, done(cascade.levels, path[:place], level))
        for place, level in enumerate(path)
        if cascade.levels[level].kind != BAG
    )


def placement(cascade: Cascade, workers: int, own: bool) -> list[tuple[int, ...]]:
    """Return the workers of each level: all, or with `own` one for each, where the last one has all larger levels.

    An exit is where its trunk is, and a bag is nowhere.
    """
    if not own:
        return [tuple(range(workers))] * len(cascade.levels)
    trunks = [level.classifier for level in cascade.levels if level.kind not in (BAG, EXIT)]
    places = [trunks.index(level.trunk or level.classifier) if level.kind != BAG else 0 for level in cascade.levels]
    return [(min(place, workers - 1),) for place in places]


def knowledge(cascades: Sequence[Cascade], workers: int = 1, own: bool = False) -> Knowledge:
    """Return what stored artifacts say. A level that some candidate prunes by takes as long as with importance."""
    number_of = numbers(cascades)
    models: list[Model] = []
    tasks = {}
    for cascade in cascades:
        workers_of = placement(cascade, workers, own)
        pruning = prunes(cascade)
        for task, number, layers in number_of:
            if task == cascade.task:
                level = cascade.levels[number]
                measured = level.importance if number in pruning and level.importance else level.after(layers)
                models.append(Model(measured, workers_of[number]))
        tasks[cascade.task] = tuple(_path(cascade, candidate, number_of, own) for candidate in cascade.candidates)
    return Knowledge(tuple(models), tasks)


def _path(cascade: Cascade, candidate: Candidate, number_of: Mapping[Number, int], own: bool) -> Path:
    models = tuple(number_of[key] for key in on_devices(cascade, candidate))
    before = len(candidate.levels) - len(models)  # a bag
    shares = candidate.shares[before:]
    reached = shares[0] if shares and shares[0] else 1.0
    return Path(
        models,
        1.0 if before else cascade.levels[candidate.levels[0]].accuracy,
        tuple(share / reached for share in shares),
        None if own else _instead(cascade, candidate),  # else the last one spares no device of the first
    )


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
