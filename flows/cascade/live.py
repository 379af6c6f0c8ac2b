"""What of the cascade system is live in the registry, and what its versions remember of how they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flows import release
from flows.live import champions, record_of
from flows.settings import Settings
from pliant.cascade.artifact import Cascade, Outputs
from pliant.cascade.plan import PlanConfig
from pliant.errors import ArtifactError, RegistryError
from pliant.models.artifact import Classifier
from profiling.cascade.latency import LatencyConfig
from registry import codec
from registry.mlflow_store import MlflowRegistry
from registry.names import CASCADE_TASK, LEVEL_TAG, cascade_level, experiment
from registry.package import Published
from registry.store import FolderStore


@dataclass(frozen=True, slots=True)
class Saved:
    """An artifact in the store."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Record:
    """What a cascade was planned with: enough to plan it again with other latencies."""

    plan: PlanConfig
    latency: LatencyConfig
    threads: int
    outputs: Saved  # on the profiling split
    test: Saved  # on the test split


@dataclass(frozen=True, slots=True)
class Live:
    """A task as it is served now."""

    cascade: Cascade
    published: Published

    @property
    def record(self) -> Record:
        return record_of(Record, self.published, "cascade")

    def test(self, store: FolderStore) -> Outputs | None:
        """Its outputs on its test split, where they are still known and there."""
        try:
            return saved_outputs(store, self.record.test)
        except RegistryError:
            return None


def open_registry(settings: Settings) -> MlflowRegistry:
    return release.open_registry(settings, experiment("cascade"))


def live(registry: MlflowRegistry) -> dict[str, Live]:
    """Every task with a champion, by name; nothing before the first release."""
    return {cascade.task: Live(cascade, version) for cascade, version in champions(registry, Cascade, CASCADE_TASK)}


def champion(settings: Settings) -> dict[str, Cascade]:
    """What is served now, by task."""
    return {task: one.cascade for task, one in live(open_registry(settings)).items()}


def classifiers(registry: MlflowRegistry, one: Live) -> list[Classifier]:
    """The levels' classifiers, those that the cascade was planned for. Raises `RegistryError`, `ArtifactError`."""
    return [_classifier(registry, one, level.name, level.classifier) for level in one.cascade.levels]


def _classifier(registry: MlflowRegistry, one: Live, level: str, digest: str) -> Classifier:
    folder, _ = registry.fetch(cascade_level(one.cascade.task, level), versions(one.published.tags)[level])
    return codec.load(Classifier, folder, digest)


def versions(tags: Mapping[str, str]) -> dict[str, int]:
    """Level -> version of its model, from the tags of a task's version."""
    return {tag.removeprefix(LEVEL_TAG): int(number) for tag, number in tags.items() if tag.startswith(LEVEL_TAG)}


def saved_outputs(store: FolderStore, saved: Saved) -> Outputs | None:
    """None where the store has lost them, or holds others by now."""
    try:
        return store.load(Outputs, saved.key, saved.digest)
    except (ArtifactError, RegistryError):
        return None
