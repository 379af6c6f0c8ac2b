"""The artifacts that the tokens service serves, their versions, and whether they fit each other.

The backbone's weights are verified here and not kept: the device process loads them, and this process stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pliant.errors import ArtifactError, BackboneError, InputError, RegistryError
from pliant.registry import codec
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE, TOKENS_TASK
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, fetching, load
from pliant.tokens.artifact import Backbone, Profile, Task
from pliant.tokens.scheduler import Knowledge

ALLOWANCE = 0.02
"""By how much a promised accuracy is below the measured one. The smallest embedded data set has some 290 pictures a split:
at 90% the standard error is 1.8 points, so the lower of two such shares is more than 2 points too high once in 50 tasks."""


@dataclass(frozen=True, slots=True)
class ServedTask:
    """A task with its version in the registry."""

    task: Task
    version: int
    digest: str


TaskInfo = Mapping[str, Any]
"""A task as GET /tasks lists it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What gave an output: the classes of its probabilities, and the versions by kind of artifact."""

    classes: tuple[str, ...]
    versions: Mapping[str, int]
    promised: Mapping[int, float] = field(default_factory=dict)  # setting of a launch -> accuracy that is promised

    @property
    def version(self) -> int:
        """The version that labels count for."""
        return self.versions["task"]


@dataclass(frozen=True, slots=True)
class Catalog:
    """A backbone with its profile and tasks. All tasks are made for this backbone and have the same gammas."""

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
    # Here, as every answer asks for one.
    origins: Mapping[tuple[str, str], Origin] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "origins", self._origins())

    @property
    def folders(self) -> set[Path]:
        """The folders that the device process reads."""
        return {self.folder}

    @property
    def pointers(self) -> Mapping[str, int]:
        tasks = {TOKENS_TASK + name: served.version for name, served in self.tasks.items()}
        return {TOKENS_BACKBONE: self.backbone_version, TOKENS_PROFILE: self.profile_version, **tasks}

    @property
    def device(self) -> str:
        """The class of device that it was profiled on."""
        return self.profile.device

    @property
    def planned_by(self) -> Mapping[str, int]:
        """Versions of artifacts that the scheduler uses but no output depends on."""
        return {"profile": self.profile_version}

    def knowledge(self) -> Knowledge:
        """What the scheduler knows of latency and accuracy."""
        precision = self.profile.precision
        accuracy = {name: dict(served.task.served_in(precision).accuracy) for name, served in self.tasks.items()}
        return Knowledge(self.profile.latency, accuracy, self.profile.rule)

    def _origins(self) -> Mapping[tuple[str, str], Origin]:
        return {
            (served.digest, self.backbone_digest): Origin(
                served.task.classes,
                {"backbone": self.backbone_version, "task": served.version},
                promised=promised(served.task.served_in(self.profile.precision)),
            )
            for served in self.tasks.values()
        }

    def tasks_described(self) -> Mapping[str, TaskInfo]:
        return {name: _described(served, self.profile.precision) for name, served in sorted(self.tasks.items())}

    def described(self) -> Mapping[str, Any]:
        backbone = {"version": self.backbone_version, "digest": self.backbone_digest, "source": self.source}
        profile = {"version": self.profile_version, "digest": self.profile_digest, "device": self.profile.device}
        return {"backbone": backbone, "profile": {**profile, "precision": self.profile.precision}}

    def serves_as(self, other: Catalog) -> bool:
        """Whether both serve the same artifacts under the same versions."""
        return (self._base, self._digests) == (other._base, other._digests)

    def extends(self, running: Catalog) -> bool:
        """Whether `running` becomes this catalog by adding or updating tasks: the rest is equal, and no task is removed."""
        if self._base != running._base or not running.tasks.keys() <= self.tasks.keys():
            return False
        return _heads(running.tasks) == _heads(self.tasks)

    @property
    def _base(self) -> tuple[object, ...]:
        """Everything but the tasks: a change of it needs the next generation."""
        return self.backbone_version, self.backbone_digest, self.profile_version, self.profile_digest

    @property
    def _digests(self) -> Mapping[str, tuple[int, str]]:
        return {name: (served.version, served.digest) for name, served in self.tasks.items()}

    def with_task(self, served: ServedTask) -> Catalog:
        """Return the catalog with this task added or replaced. Raises `InputError` if its gammas differ from the others'."""
        others = [other for name, other in self.tasks.items() if name != served.task.name]
        check_gammas(served.task, others[0].task if others else served.task, self.profile)
        return replace(self, tasks={**self.tasks, served.task.name: served})


def load_catalog(
    registry: Artifacts, alias: str, running: Catalog | None = None, pointers: Mapping[str, int] | None = None
) -> Catalog:
    """Return what `alias` points to, or the versions in `pointers`. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used, `InputError` for tasks whose
    gammas differ.
    """
    with fetching(registry, alias, TOKENS_PREFIX, pointers) as fetcher:
        return _complete(fetcher, _load_backbone(fetcher, running), running)


def load_task(registry: Artifacts, name: str, which: str | int, backbone: str) -> ServedTask:
    """Return the task with an alias or version. Raises `BackboneError` if it is made for another backbone than `backbone`,
    and `RegistryError` and `ArtifactError`.
    """
    task, published = load(registry, Task, TOKENS_TASK + name, which)
    _check_backbone(f"task {name}", task.backbone, backbone)
    if task.name != name:
        raise ArtifactError(f"{published.name} holds a task that calls itself {task.name}, but should be {name}")
    return ServedTask(task, published.version, published.digest)


def has_task(registry: Artifacts, name: str) -> bool:
    """Whether the registry has a model of the task, under any alias or none."""
    return TOKENS_TASK + name in registry.names(TOKENS_TASK)


def promised(task: Task) -> Mapping[int, float]:
    """Return the accuracy that is promised of a task: gamma -> share of right answers."""
    return {gamma: promised_of(share, task.test_accuracy.get(gamma)) for gamma, share in task.accuracy.items()}


def promised_of(profiling: float, test: float | None) -> float:
    """Return the accuracy to be promised where these shares of the profiling and test splits were answered correctly.

    It is `ALLOWANCE` below the lower of the two: a measured share is no bound, and the test of a promise finds any lack
    sooner or later.
    """
    return max(0.0, (profiling if test is None else min(profiling, test)) - ALLOWANCE)


def check_gammas(task: Task, other: Task, profile: Profile) -> None:
    """Raise `InputError` if the gammas of two tasks differ, or its accuracy was not measured in the profile's precision.

    Tasks share batches, so each needs a head, prompts and an accuracy for the gammas that the others have.
    """
    task.served_in(profile.precision)
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
    running_tasks, known, tasks = running.tasks if running else {}, fetcher.pointers, {}
    for model in sorted(name for name in known if name.startswith(TOKENS_TASK)):
        name = model.removeprefix(TOKENS_TASK)
        served = running_tasks.get(name)
        if served is None or served.version != known[model] or served.task.backbone != base.digest:
            served = load_task(fetcher.registry, name, known[model], base.digest)
        tasks[name] = served
    if not tasks:  # a task without the alias is not served, which is no error
        raise RegistryError(
            f"no model {TOKENS_TASK}... has a version under the alias {fetcher.alias}: train a task first"
        )
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


def _check_backbone(what: str, backbone: str, wanted: str) -> None:
    if backbone != wanted:
        raise BackboneError(f"{what} was made for backbone {backbone[:12]}, but the one served is {wanted[:12]}")


def _heads(tasks: Mapping[str, ServedTask]) -> set[int]:
    return set(next(iter(tasks.values())).task.heads)


def _described(served: ServedTask, precision: str | None) -> TaskInfo:
    task = served.task.served_in(precision)
    accuracy = {str(gamma): share for gamma, share in sorted(task.accuracy.items())}
    return {
        "name": task.name,
        "classes": list(task.classes),
        "version": served.version,
        "digest": served.digest,
        "accuracy": accuracy,
    }
