"""The artifacts that the cascade service serves, their versions, and whether they fit each other.

A task has several levels. Weights of classifiers are verified here and not kept: the device processes load them, and this
process stays small. Bags are kept, as this process runs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pliant.cascade.artifact import KINDS, Bag, Cascade, Level, LevelProfile
from pliant.cascade.knowledge import trunk_of
from pliant.errors import ArtifactError, RegistryError
from pliant.models.artifact import Classifier
from pliant.registry.names import CASCADE_PREFIX, CASCADE_TASK, cascade_level
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, Held, TaskCatalog, fetching


@dataclass(frozen=True, slots=True)
class ServedTask:
    """A task with its levels and their versions; device processes read the weights from the levels' folders."""

    cascade: Cascade
    version: int
    digest: str
    levels: tuple[Held[Level], ...]  # as in the cascade

    @property
    def identity(self) -> tuple[object, ...]:
        return self.version, self.digest, *(level.identity for level in self.levels)

    @property
    def folders(self) -> set[Path]:
        return {level.folder for level in self.levels}

    @property
    def device(self) -> str:
        return self.cascade.device

    @property
    def trunks(self) -> list[Classifier | Bag]:
        """Return for each level the classifier whose layers it runs, or the bag: what says how texts are read."""
        artifacts = [level.artifact for level in self.levels]
        return [trunk_of(self.cascade, artifacts, number) for number in range(len(artifacts))]

    @property
    def max_length(self) -> int:
        """Return how many tokens every level reads. A longer text is truncated, and its answer says so."""
        return min(trunk.max_length for trunk in self.trunks)


@dataclass(frozen=True, slots=True)
class Catalog(TaskCatalog[ServedTask]):
    """A catalog of cascades."""

    WHAT: ClassVar[tuple[str, str]] = "the tasks", "profile them on one, or serve regardless (--any-profile)"

    @property
    def cascades(self) -> Sequence[Cascade]:
        """Return the tasks' cascades, in the order in which models are numbered (pliant/cascade/knowledge.py)."""
        return [served.cascade for served in self.tasks.values()]


def load_catalog(registry: Artifacts, alias: str, running: Catalog | None = None) -> Catalog:
    """Return what `alias` points to. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used or does not fit together.
    """
    with fetching(registry, alias, CASCADE_PREFIX) as fetcher:
        pointers = fetcher.pointers
        names = sorted(name.removeprefix(CASCADE_TASK) for name in pointers if name.startswith(CASCADE_TASK))
        if not names:
            raise RegistryError(f"no model {CASCADE_TASK}... has a version under the alias {alias}: train a task first")
        former = running.tasks if running else {}
        return Catalog({name: _load_task(fetcher, name, former.get(name)) for name in names}, pointers)


def _load_task(fetcher: Fetcher, name: str, running: ServedTask | None) -> ServedTask:
    if running is not None and running.version == fetcher.pointers[CASCADE_TASK + name]:
        served = running
    else:
        cascade, published = fetcher.load(Cascade, CASCADE_TASK + name)
        if cascade.task != name:
            raise ArtifactError(f"{published.name} holds a task that calls itself {cascade.task}, but should be {name}")
        served = ServedTask(cascade, published.version, published.digest, ())
    former = running.levels if running else ()
    cascade = served.cascade
    levels = tuple(_load_level(fetcher, cascade, profile, former) for profile in cascade.levels)
    for number in range(len(levels)):  # an exit is refused without its classifier
        trunk_of(cascade, [level.artifact for level in levels], number)
    return replace(served, levels=levels)


def _load_level(
    fetcher: Fetcher, cascade: Cascade, profile: LevelProfile, running: Sequence[Held[Level]]
) -> Held[Level]:
    name, digest = cascade_level(cascade.task, profile.name), profile.classifier
    former = next((level for level in running if level.identity == (fetcher.pointers.get(name), digest)), None)
    level = fetcher.held(KINDS[profile.kind], name, digest, f"task {cascade.task}", profile.kind, former)
    if level.artifact.classes != cascade.classes:
        raise ArtifactError(f"{name} has other classes than task {cascade.task}: train them on the same data")
    return level


def described(served: ServedTask) -> dict[str, Any]:
    """Return a task as GET /tasks lists it."""
    cascade = served.cascade
    return {
        "name": cascade.task,
        "version": served.version,
        "digest": served.digest,
        "classes": list(cascade.classes),
        "pair": cascade.pair,
        "max_length": served.max_length,
        "tolerance": cascade.tolerance if not cascade.classes else None,
        "device": cascade.device,
        "precision": cascade.precision,
        "target": cascade.target,
        "confidence": cascade.confidence,
        "promise": {"kind": cascade.promise, "amount": cascade.amount, "labels": cascade.candidates[0].labels},
        "levels": [
            {
                "name": profile.name,
                "kind": profile.kind,
                "version": level.version,
                "digest": level.digest,
                "max_length": trunk.max_length,
                "temperature": profile.temperature,
                "accuracy": profile.accuracy,
                "calibration_error": profile.error,
            }
            for profile, level, trunk in zip(cascade.levels, served.levels, served.trunks, strict=True)
        ],
        "candidates": [
            {
                "name": candidate.name,
                "levels": [cascade.levels[level].name for level in candidate.levels],
                "accuracy": candidate.accuracy,
                "promised": candidate.promised,
                "agreement": candidate.agreement,
                "test_accuracy": cascade.test_accuracy.get(candidate.name),
                "seconds": candidate.seconds,
                "shares": list(candidate.shares),
                "kept": candidate.kept,
            }
            for candidate in cascade.candidates
        ],
    }
