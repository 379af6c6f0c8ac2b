"""The artifacts that the tokens service serves, their versions, whether they fit each other, and what a device process is
told of them.

The backbone's weights are verified here and not kept: the device process loads them, and this process stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pliant.errors import ArtifactError, BackboneError, InputError, RegistryError
from pliant.registry import codec
from pliant.registry.names import TOKENS_BACKBONE, TOKENS_PREFIX, TOKENS_PROFILE, TOKENS_TASK
from pliant.serving.lifecycle.catalog import Artifacts, fetching, load
from pliant.serving.workers.devices import BuildPlan, DevicePlan
from pliant.tokens.artifact import Backbone, Profile, Task
from pliant.tokens.points import Point
from pliant.tokens.scheduler import Knowledge, knowledge

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
class ServedBackbone:
    """A backbone without its weights, with its version in the registry. Device processes read its folder."""

    folder: Path
    version: int
    digest: str
    image_size: int
    source: str


@dataclass(frozen=True, slots=True)
class Origin:
    """What gave an output: the classes of its probabilities, and the versions by kind of artifact."""

    classes: tuple[str, ...]
    versions: Mapping[str, int]
    promised: Mapping[int, float] = field(default_factory=dict)  # setting of a launch -> accuracy that is promised


@dataclass(frozen=True, slots=True)
class Catalog:
    """A backbone with its profile and tasks. All tasks are made for this backbone and serve all that is profiled."""

    PREFIXES: ClassVar[tuple[str, ...]] = (TOKENS_BACKBONE, TOKENS_PROFILE, TOKENS_TASK)

    backbone: ServedBackbone
    profile: Profile
    profile_version: int
    profile_digest: str
    tasks: Mapping[str, ServedTask]
    # Here, as every answer asks for one.
    origins: Mapping[tuple[str, str], Origin] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        origins = {
            (served.digest, self.backbone.digest): Origin(
                served.task.classes,
                {"backbone": self.backbone.version, "task": served.version},
                promised=promised(served.task.served_in(self.profile.precision)),
            )
            for served in self.tasks.values()
        }
        object.__setattr__(self, "origins", origins)

    @property
    def folders(self) -> set[Path]:
        """The folders that the device process reads."""
        return {self.backbone.folder}

    @property
    def pointers(self) -> Mapping[str, int]:
        tasks = {TOKENS_TASK + name: served.version for name, served in self.tasks.items()}
        return {TOKENS_BACKBONE: self.backbone.version, TOKENS_PROFILE: self.profile_version, **tasks}

    @property
    def device(self) -> str:
        """The class of device that it was profiled on."""
        return self.profile.device

    def knowledge(self) -> Knowledge:
        """What the scheduler knows of latency and accuracy."""
        return knowledge(self.profile, [served.task for served in self.tasks.values()])

    def tasks_described(self) -> Mapping[str, TaskInfo]:
        described = {}
        for name, served in sorted(self.tasks.items()):
            task = served.task.served_in(self.profile.precision)
            described[name] = {
                "name": name,
                "classes": list(task.classes),
                "version": served.version,
                "digest": served.digest,
                "accuracy": {str(gamma): task.accuracy[gamma] for gamma in self.profile.latency.settings},
            }
        return described

    def serves_as(self, other: Catalog) -> bool:
        """Whether both serve the same artifacts under the same versions."""
        mine, theirs = (
            {name: (served.version, served.digest) for name, served in each.tasks.items()} for each in (self, other)
        )
        return self._base == other._base and mine == theirs

    def extends(self, running: Catalog) -> bool:
        """Whether `running` becomes this catalog by adding or updating tasks: the rest is equal, and no task is removed."""
        return self._base == running._base and running.tasks.keys() <= self.tasks.keys()

    @property
    def _base(self) -> tuple[object, ...]:
        """Everything but the tasks: a change of it needs the next generation."""
        return self.backbone.version, self.backbone.digest, self.profile_version, self.profile_digest

    def with_task(self, served: ServedTask) -> Catalog:
        """Return the catalog with this task added or replaced. Raises as `check_settings`."""
        check_settings(served.task, self.profile)
        return replace(self, tasks={**self.tasks, served.task.name: served})


def load_catalog(
    registry: Artifacts, alias: str, running: Catalog | None = None, pointers: Mapping[str, int] | None = None
) -> Catalog:
    """Return what `alias` points to, or the versions in `pointers`. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used, `InputError` for tasks whose
    lack a profiled setting.
    """
    with fetching(registry, alias, TOKENS_PREFIX, pointers) as fetcher:
        if running is not None and fetcher.which(TOKENS_BACKBONE) == running.backbone.version:
            backbone = running.backbone
        else:
            folder, published = fetcher.fetch(TOKENS_BACKBONE)
            loaded = codec.load(Backbone, folder, published.digest)
            backbone = ServedBackbone(folder, published.version, published.digest, loaded.image_size, loaded.source)
        if running is not None and fetcher.which(TOKENS_PROFILE) == running.profile_version:
            profile, version, digest = running.profile, running.profile_version, running.profile_digest
        else:
            profile, published = fetcher.load(Profile, TOKENS_PROFILE)
            version, digest = published.version, published.digest
        _check_backbone("the profile", profile.backbone, backbone.digest)
        former, tasks = running.tasks if running else {}, dict[str, ServedTask]()
        for model, wanted in sorted(fetcher.pointers.items()):
            if model.startswith(TOKENS_TASK):
                served = former.get(name := model.removeprefix(TOKENS_TASK))
                if served is None or served.version != wanted or served.task.backbone != backbone.digest:
                    served = load_task(registry, name, wanted, backbone.digest)
                tasks[name] = served
        if not tasks:  # a task without the alias is not served, which is no error
            message = f"no model {TOKENS_TASK}... has a version under the alias {alias}: train a task first"
            raise RegistryError(message)
        for served in tasks.values():
            check_settings(served.task, profile)
        return Catalog(backbone, profile, version, digest, tasks)


def load_task(registry: Artifacts, name: str, which: str | int, backbone: str) -> ServedTask:
    """Return the task with an alias or version. Raises `BackboneError` if it is made for another backbone than `backbone`,
    and `RegistryError` and `ArtifactError`.
    """
    task, published = load(registry, Task, TOKENS_TASK + name, which)
    _check_backbone(f"task {name}", task.backbone, backbone)
    if task.name != name:
        raise ArtifactError(f"{published.name} holds a task that calls itself {task.name}, but should be {name}")
    return ServedTask(task, published.version, published.digest)


def promised(task: Task) -> Mapping[int, float]:
    """Return the accuracy that is promised of a task: gamma -> share of right answers."""
    return {gamma: promised_of(share, task.test_accuracy.get(gamma)) for gamma, share in task.accuracy.items()}


def promised_of(profiling: float, test: float | None) -> float:
    """Return the accuracy to be promised where these shares of the profiling and test splits were answered correctly.

    It is `ALLOWANCE` below the lower of the two: a measured share is no bound, and the test of a promise finds any lack
    sooner or later.
    """
    return max(0.0, (profiling if test is None else min(profiling, test)) - ALLOWANCE)


def check_settings(task: Task, profile: Profile) -> None:
    """Raise `InputError` if a task cannot serve what is profiled, or was not measured in the profile's precision.

    Tasks share batches, so each needs a head, prompts and an accuracy for every setting, and the same operating points.
    """
    settings = profile.latency.settings
    measured = task.served_in(profile.precision).accuracy
    if missing := [setting for setting in settings if setting not in measured or not task.serves(setting)]:
        raise InputError(f"accuracy of task {task.name}", f"without gammas {missing}", "given for every profiled gamma")
    if other := [number for number, point in profile.points.items() if task.points.get(number) != point]:
        raise InputError(f"operating points of task {task.name}", other, "those that are profiled")


def _check_backbone(what: str, backbone: str, wanted: str) -> None:
    if backbone != wanted:
        raise BackboneError(f"{what} was made for backbone {backbone[:12]}, but the one served is {wanted[:12]}")


Image = tuple[str, NDArray[np.uint8]]
"""A task's name and an image [size, size, 3], of the size that was served when the request arrived."""

Output = tuple[str, str, NDArray[np.float32]]
"""The digest of the task, the digest of the model, and the probabilities."""


@dataclass(frozen=True, slots=True)
class TokensBuild(BuildPlan):
    """Makes the model in the device process."""

    BUILDER: ClassVar[str] = "pliant.serving.tokens.device:build"

    folder: Path
    digest: str
    tasks: tuple[ServedTask, ...]
    gammas: tuple[int, ...]
    plan: DevicePlan
    precision: str | None = None  # None: what the device prefers
    points: Mapping[int, Point] = field(default_factory=dict)  # by number
