"""The champions of the cascade system in the registry, and what their versions remember of how they were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pliant.cascade.artifact import KINDS, Cascade, Level, Outputs
from pliant.cascade.plan import PlanConfig
from pliant.errors import ArtifactError, RegistryError
from pliant.flows.champions import Champion, fetch
from pliant.flows.stage import StageResult
from pliant.profiling.cascade.latency import LatencyConfig
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import LEVEL_TAG, cascade_level
from pliant.registry.store import FolderStore


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
    other: tuple[Saved, ...] = ()  # both in another precision, in which the levels may be served as well


def outputs_on_test(champion: Champion[Cascade], store: FolderStore) -> Outputs | None:
    """Return a champion's outputs on its test split, where they are still known and there."""
    try:
        return saved_outputs(store, champion.record(Record).test)
    except RegistryError:
        return None


def fetch_levels(registry: MlflowRegistry, champion: Champion[Cascade]) -> dict[str, Level]:
    """Return by digest the levels that the cascade was planned for, in order. Raises `RegistryError`, `ArtifactError`."""
    cascade, numbers = champion.artifact, versions(champion.published.tags)
    return {
        level.classifier: fetch(
            registry, KINDS[level.kind], cascade_level(cascade.task, level.name), numbers[level.name], level.classifier
        )[0]
        for level in cascade.levels
    }


def store_levels(
    registry: MlflowRegistry, champion: Champion[Cascade], store: FolderStore
) -> dict[str, StageResult[Any]]:
    """Return the levels by name, as results of stages: what they were planned for is copied into the store.

    Raises `RegistryError`, `ArtifactError`.
    """
    results: dict[str, StageResult[Any]] = {}
    for level, artifact in zip(champion.artifact.levels, fetch_levels(registry, champion).values(), strict=True):
        key = f"cascade/champion-{champion.artifact.task}-{level.name}/{level.classifier.rpartition(':')[2][:24]}"
        results[level.name] = StageResult(KINDS[level.kind], store, key, store.save(key, artifact))
    return results


def versions(tags: Mapping[str, str]) -> dict[str, int]:
    """Return level -> version of its model, from the tags of a task's version."""
    return {tag.removeprefix(LEVEL_TAG): int(number) for tag, number in tags.items() if tag.startswith(LEVEL_TAG)}


def saved_outputs(store: FolderStore, saved: Saved) -> Outputs | None:
    """Return outputs from the store; None where it has lost them, or holds others by now."""
    try:
        return store.load(Outputs, saved.key, saved.digest)
    except (ArtifactError, RegistryError):
        return None
