"""What the tokens service serves: which artifacts, of which versions, and whether they fit each other.

Knows the registry's names and the artifacts; knows nothing of HTTP, processes or schedules. The backbone's weights are
verified here and dropped again: the device process loads them itself, so this one stays small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pliant.errors import ArtifactError, BackboneError, InputError, RegistryError
from pliant.tokens.artifact import Backbone, Profile, Task
from pliant.tokens.policy import Knowledge
from registry import codec
from registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE, TOKENS_TASK
from serving.lifecycle.artifacts import Registry as Registry  # benchmarks/rivals takes it from here
from serving.lifecycle.catalog import Fetcher, fetching, load


@dataclass(frozen=True, slots=True)
class ServedTask:
    task: Task
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class Source:
    """What gave an output: the classes that its probabilities are of, and versions by the kind of artifact."""

    classes: tuple[str, ...]
    versions: Mapping[str, int]
    variant: str | None = None


class Servable(Protocol):
    """Everything that is served at one time, and fits together. `Catalog` is one, variants.py has the other."""

    PREFIXES: ClassVar[tuple[str, ...]]  # of the names of registered models that it is made of

    @property
    def image_size(self) -> int: ...
    @property
    def folders(self) -> Sequence[Path]:
        """That the device process reads."""

    @property
    def pointers(self) -> Mapping[str, int]:
        """Registered model -> version, of all that it is made of."""

    @property
    def device(self) -> str:
        """The device class that it was profiled on."""

    @property
    def planned_by(self) -> Mapping[str, int]:
        """Versions of what the scheduler goes by and no output depends on."""

    def knowledge(self) -> Knowledge: ...
    def sources(self) -> Mapping[tuple[str, str], Source]:
        """By the digests of task and model that stand in an output."""

    def tasks_described(self) -> Mapping[str, Mapping[str, Any]]:
        """Name -> what GET tasks tells."""

    def described(self) -> Mapping[str, Any]:
        """What the status tells, apart from tasks."""

    def updates_from(self, running: Servable) -> Sequence[ServedTask] | None:
        """What to tell a device process that serves `running`; None where it takes another process."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A backbone with its profile and tasks. Every task has the same gammas and is made for the backbone."""

    PREFIXES: ClassVar[tuple[str, ...]] = (TOKENS_BACKBONE, TOKENS_PROFILE, TOKENS_TASK)

    folder: Path  # of the backbone
    backbone_version: int
    backbone_digest: str
    image_size: int
    source: str
    profile: Profile
    profile_version: int
    profile_digest: str
    tasks: Mapping[str, ServedTask]

    @property
    def folders(self) -> Sequence[Path]:
        return [self.folder]

    @property
    def pointers(self) -> Mapping[str, int]:
        tasks = {TOKENS_TASK + name: served.version for name, served in self.tasks.items()}
        return {TOKENS_BACKBONE: self.backbone_version, TOKENS_PROFILE: self.profile_version, **tasks}

    @property
    def device(self) -> str:
        return self.profile.device

    @property
    def planned_by(self) -> Mapping[str, int]:
        return {"profile": self.profile_version}

    def knowledge(self) -> Knowledge:
        accuracy = {name: dict(served.task.accuracy) for name, served in self.tasks.items()}
        return Knowledge(self.profile.latency, accuracy, self.profile.rule)

    def sources(self) -> Mapping[tuple[str, str], Source]:
        return {
            (served.digest, self.backbone_digest): Source(
                served.task.classes, {"backbone": self.backbone_version, "task": served.version}
            )
            for served in self.tasks.values()
        }

    def tasks_described(self) -> Mapping[str, Mapping[str, Any]]:
        return {name: _described(served) for name, served in sorted(self.tasks.items())}

    def described(self) -> Mapping[str, Any]:
        backbone = {"version": self.backbone_version, "digest": self.backbone_digest, "source": self.source}
        profile = {"version": self.profile_version, "digest": self.profile_digest, "device": self.profile.device}
        return {"backbone": backbone, "profile": profile}

    def updates_from(self, running: Servable) -> Sequence[ServedTask] | None:
        if not isinstance(running, Catalog) or running.backbone_digest != self.backbone_digest:
            return None
        if _heads(running.tasks) != _heads(self.tasks):
            return None
        former = {served.digest for served in running.tasks.values()}
        return [served for served in self.tasks.values() if served.digest not in former]

    def with_task(self, served: ServedTask) -> Catalog:
        """Raises `InputError` for a task of other gammas."""
        others = [other for name, other in self.tasks.items() if name != served.task.name]
        check_gammas(served.task, others[0].task if others else served.task, self.profile)
        return replace(self, tasks={**self.tasks, served.task.name: served})


def load_catalog(
    registry: Registry, alias: str, pointers: Mapping[str, int] | None = None, running: Catalog | None = None
) -> Catalog:
    """What `alias` points to, or the versions that `pointers` names. What `running` holds already is not fetched again.

    Raises `RegistryError` for what is not there, `ArtifactError` for what cannot be used, `InputError` for tasks whose
    gammas differ.
    """
    with fetching(registry, alias, TOKENS_PREFIX, pointers) as fetcher:
        return _complete(fetcher, _load_backbone(fetcher, running), running)


def load_task(registry: Registry, name: str, which: str | int, backbone: str) -> ServedTask:
    """The version under an alias or number. Raises `BackboneError` for one made for another backbone than `backbone`."""
    task, published = load(registry, Task, TOKENS_TASK + name, which)
    _check_backbone(f"task {name}", task.backbone, backbone)
    if task.name != name:
        raise ArtifactError(f"{published.name} holds a task that calls itself {task.name}, but should be {name}")
    return ServedTask(task, published.version, published.digest)


def has_task(registry: Registry, name: str) -> bool:
    return TOKENS_TASK + name in registry.names(TOKENS_TASK)


def check_gammas(task: Task, other: Task, profile: Profile) -> None:
    """Tasks share batches, so each must have a head, prompts and an accuracy wherever the others have.

    Raises `InputError` naming the gammas.
    """
    if set(task.heads) != set(other.heads):
        raise InputError(f"heads of task {task.name}", f"for gammas {sorted(task.heads)}", f"for {sorted(other.heads)}")
    missing = [g for g in profile.latency.settings if g not in task.accuracy or max(g, 0) not in task.heads]
    if missing:
        raise InputError(f"accuracy of task {task.name}", f"without gammas {missing}", "given for every profiled gamma")


@dataclass(frozen=True, slots=True)
class _Base:
    folder: Path
    version: int
    digest: str
    image_size: int
    source: str


def _load_backbone(fetcher: Fetcher, running: Catalog | None) -> _Base:
    if running is not None and fetcher.which(TOKENS_BACKBONE) == running.backbone_version:
        return _Base(
            running.folder, running.backbone_version, running.backbone_digest, running.image_size, running.source
        )
    folder, published = fetcher.fetch(TOKENS_BACKBONE)
    backbone = codec.load(Backbone, folder, published.digest)
    return _Base(folder, published.version, published.digest, backbone.image_size, backbone.source)


def _complete(fetcher: Fetcher, base: _Base, running: Catalog | None) -> Catalog:
    profile, version, digest = _load_profile(fetcher, base.digest, running)
    held, known, tasks = running.tasks if running else {}, fetcher.pointers, {}
    for model in sorted(name for name in known if name.startswith(TOKENS_TASK)):
        name = model.removeprefix(TOKENS_TASK)
        served = held.get(name)
        if served is None or served.version != known[model] or served.task.backbone != base.digest:
            served = load_task(fetcher.registry, name, known[model], base.digest)
        tasks[name] = served
    if not tasks:  # one without the alias waits to be promoted: it is not served, and no error
        told = f"no model {TOKENS_TASK}... has a version under the alias {fetcher.alias}: train a task first"
        raise RegistryError(told)
    for served in tasks.values():
        check_gammas(served.task, next(iter(tasks.values())).task, profile)
    return Catalog(
        base.folder, base.version, base.digest, base.image_size, base.source, profile, version, digest, tasks
    )


def _load_profile(fetcher: Fetcher, backbone: str, running: Catalog | None) -> tuple[Profile, int, str]:
    if running is not None and fetcher.which(TOKENS_PROFILE) == running.profile_version:
        profile, version, digest = running.profile, running.profile_version, running.profile_digest
    else:
        profile, published = fetcher.load(Profile, TOKENS_PROFILE)
        version, digest = published.version, published.digest
    _check_backbone("the profile", profile.backbone, backbone)
    return profile, version, digest


def _check_backbone(what: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise BackboneError(f"{what} was made for backbone {found[:12]}, but the one served is {wanted[:12]}")


def _heads(tasks: Mapping[str, ServedTask]) -> set[int]:
    return set(next(iter(tasks.values())).task.heads)


def _described(served: ServedTask) -> Mapping[str, Any]:
    task = served.task
    accuracy = {str(gamma): share for gamma, share in sorted(task.accuracy.items())}
    return {
        "name": task.name,
        "classes": list(task.classes),
        "version": served.version,
        "digest": served.digest,
        "accuracy": accuracy,
    }
