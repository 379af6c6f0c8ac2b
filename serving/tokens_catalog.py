"""What the tokens service serves: which artifacts, of which versions, and whether they fit each other.

Knows the registry's names and the artifacts; knows nothing of HTTP, processes or schedules. The backbone's weights are
verified here and dropped again: the device process loads them itself, so this one stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pliant.errors import ArtifactError, BackboneError, InputError, RegistryError
from pliant.tokens.artifact import Backbone, Profile, Task
from registry import codec
from registry.package import Published

BACKBONE = "pliant-tokens-backbone"
PROFILE = "pliant-tokens-profile"
TASK_PREFIX = "pliant-tokens-task-"


class Registry(Protocol):
    """The part of registry/mlflow_store.py that serving needs."""

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]: ...
    def version(self, name: str, alias: str) -> Published | None: ...
    def names(self, prefix: str) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class ServedTask:
    task: Task
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """All that a service needs to begin with. Every task has the same gammas and is made for the backbone."""

    folder: Path  # of the backbone
    backbone_version: int
    backbone_digest: str
    image_size: int
    source: str
    profile: Profile
    profile_version: int
    profile_digest: str
    tasks: Mapping[str, ServedTask]


def load_catalog(registry: Registry, alias: str) -> Catalog:
    """Raises `RegistryError` for what is not there, `ArtifactError` for what cannot be used."""
    folder, published = registry.fetch(BACKBONE, alias)
    backbone = codec.load(Backbone, folder, published.digest)
    profile, profile_published = _load_profile(registry, alias, published.digest)
    tasks = {name: load_task(registry, name, alias, published.digest) for name in _task_names(registry, alias)}
    for served in tasks.values():
        check_gammas(served.task, next(iter(tasks.values())).task, profile)
    return Catalog(
        folder=folder,
        backbone_version=published.version,
        backbone_digest=published.digest,
        image_size=backbone.image_size,
        source=backbone.source,
        profile=profile,
        profile_version=profile_published.version,
        profile_digest=profile_published.digest,
        tasks=tasks,
    )


def load_task(registry: Registry, name: str, which: str | int, backbone: str) -> ServedTask:
    """The version under an alias or number. Raises `BackboneError` for one made for another backbone than `backbone`."""
    folder, published = registry.fetch(TASK_PREFIX + name, which)
    task = codec.load(Task, folder, published.digest)
    _check_backbone(f"task {name}", task.backbone, backbone)
    if task.name != name:
        raise ArtifactError(f"{published.name} holds a task that calls itself {task.name}, but should be {name}")
    return ServedTask(task, published.version, published.digest)


def has_task(registry: Registry, name: str) -> bool:
    return TASK_PREFIX + name in registry.names(TASK_PREFIX)


def check_gammas(task: Task, other: Task, profile: Profile) -> None:
    """Tasks share batches, so each must have a head, prompts and an accuracy wherever the others have.

    Raises `InputError` naming the gammas.
    """
    if set(task.heads) != set(other.heads):
        raise InputError(f"heads of task {task.name}", f"for gammas {sorted(task.heads)}", f"for {sorted(other.heads)}")
    missing = [gamma for gamma in profile.latency.settings if gamma not in task.accuracy]
    if missing:
        raise InputError(f"accuracy of task {task.name}", f"without gammas {missing}", "given for every profiled gamma")


def _load_profile(registry: Registry, alias: str, backbone: str) -> tuple[Profile, Published]:
    folder, published = registry.fetch(PROFILE, alias)
    profile = codec.load(Profile, folder, published.digest)
    _check_backbone("the profile", profile.backbone, backbone)
    return profile, published


def _check_backbone(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise BackboneError(f"{what} was made for backbone {found[:12]}, but the one served is {wanted[:12]}")


def _task_names(registry: Registry, alias: str) -> list[str]:
    """A task without a version under the alias waits to be promoted: it is not served, and no error."""
    models = [model for model in registry.names(TASK_PREFIX) if registry.version(model, alias) is not None]
    if not models:
        raise RegistryError(f"no model {TASK_PREFIX}... has a version under the alias {alias}: train a task first")
    return sorted(model.removeprefix(TASK_PREFIX) for model in models)
