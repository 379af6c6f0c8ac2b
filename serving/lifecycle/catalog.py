"""What a service reads from the registry: catalogs, the versions and artifacts that they are made of, and releases.

The last whole release is loaded: the one that the alias names or, where that is broken, the one before it, and so on. A
release is broken if a version that it names is missing, an artifact is gone or altered, or the parts do not fit together.
A registry without releases is read by the models' own aliases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pliant.errors import ArtifactError, DeviceError, RegistryError
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import system_of
from pliant.registry.package import Published
from pliant.registry.releases import RegistryRelease
from pliant.registry.signing.signatures import signing

if TYPE_CHECKING:  # device processes come by here, on machines without pydantic, too
    from pliant.serving.settings import Settings

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T", bound=codec.Artifact)


class Artifacts(Protocol):
    """The methods that catalogs are loaded by: of a registry, or of the view of it that a release gives."""

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]: ...
    def version(self, name: str, alias: str) -> Published | None: ...
    def versions(self, prefix: str, alias: str) -> Mapping[str, int]: ...
    def names(self, prefix: str) -> list[str]: ...
    def discard(self, folder: Path) -> None: ...


class Registry(Artifacts, Protocol):
    """The methods of registry/mlflow_store.py that serving uses."""

    def aliases(self, prefix: str, alias: str) -> Mapping[str, int]: ...
    def release(self, system: str, which: str | int) -> RegistryRelease | None: ...
    def identity(self) -> str: ...
    def bell(self, system: str) -> Callable[[], object] | None: ...


class Catalog(Protocol):
    """The artifacts that a service serves, with their versions in the registry."""

    @property
    def pointers(self) -> Mapping[str, int]:
        """The versions that are served, by registered model."""

    @property
    def folders(self) -> set[Path]:
        """The folders that the device processes read."""

    @property
    def device(self) -> str:
        """The class of device that everything was profiled on. Raises `DeviceError` if there are several."""

    def serves_as(self, other: Self) -> bool:
        """Whether both serve the same artifacts under the same versions."""


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Fetches models by the version in `pointers`, or else by `alias`, and records their folders."""

    registry: Artifacts
    alias: str
    pointers: Mapping[str, int]
    folders: list[Path] = field(default_factory=list)

    def fetch(self, name: str) -> tuple[Path, Published]:
        """Return the folder of a model's files, and its version. Raises `RegistryError`."""
        folder, published = self.registry.fetch(name, self.which(name))
        self.folders.append(folder)
        return folder, published

    def load(self, kind: type[T], name: str) -> tuple[T, Published]:
        """Return an artifact and its version. Raises `RegistryError` and `ArtifactError`."""
        return load(self.registry, kind, name, self.which(name))

    def part(self, name: str, digest: str, owner: str, kind: str) -> tuple[Path, Published]:
        """Return the folder and version of a model, a `kind`, that `owner` (such as "task reviews") was planned with.

        Raises `RegistryError`, and `ArtifactError` if it has no version, or is another one.
        """
        if name not in self.pointers:
            raise ArtifactError(f"{owner} needs {name}, which has no version under the alias {self.alias}")
        folder, published = self.fetch(name)
        if published.digest != digest:
            raise ArtifactError(
                f"{owner} was planned with {kind} {digest[:12]}, but {self.alias} of {name} (version {published.version}) "
                f"is {published.digest[:12]}: promote the plan that was made with it"
            )
        return folder, published

    def held(
        self, kind: type[T], name: str, digest: str, owner: str, what: str, running: Held[T] | None = None
    ) -> Held[T]:
        """Return a verified artifact without its weights: `running`, where that is it. Raises as `part`."""
        if running and (running.digest, running.version) == (digest, self.pointers.get(name)):
            return running
        folder, published = self.part(name, digest, owner, what)
        artifact: Any = codec.load(kind, folder, published.digest)
        kept = replace(artifact, weights={}) if hasattr(artifact, "weights") else artifact
        return Held(kept, published.version, digest, folder)

    def which(self, name: str) -> str | int:
        """Return the version of a model that is fetched, or the alias."""
        return self.pointers.get(name, self.alias)

    def versions(self, *names: str) -> tuple[int | None, ...]:
        """Return the versions of these models in `pointers`; None for one that is not among them."""
        return tuple(map(self.pointers.get, names))


@dataclass(frozen=True, slots=True)
class Held(Generic[A]):
    """An artifact with its version, and the folder that device processes read: its weights may be left out here."""

    artifact: A
    version: int
    digest: str
    folder: Path

    @property
    def identity(self) -> tuple[object, ...]:
        return self.version, self.digest

    @property
    def folders(self) -> set[Path]:
        return {self.folder}

    @property
    def device(self) -> str:
        """The class of device that the artifact, one that says so, was measured on."""
        measured: Any = self.artifact
        return str(measured.device)


class ServedTask(Protocol):
    """A task of a catalog, with all that it is made of."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Versions and digests: equal if the same artifacts are served."""

    @property
    def folders(self) -> set[Path]: ...
    @property
    def device(self) -> str: ...


P = TypeVar("P", bound=ServedTask)


@dataclass(frozen=True, slots=True)
class TaskCatalog(Generic[P]):
    """A catalog of tasks by name, in order of names, and the versions that they were loaded by."""

    WHAT: ClassVar[tuple[str, str]] = "the tasks", "train them on one"
    """What its tasks are called, and what is advised where they were measured on several classes of device."""

    tasks: Mapping[str, P]
    pointers: Mapping[str, int]

    @property
    def folders(self) -> set[Path]:
        return {folder for task in self.tasks.values() for folder in task.folders}

    @property
    def device(self) -> str:
        return only_class({task.device for task in self.tasks.values()}, *self.WHAT)

    def serves_as(self, other: Self) -> bool:
        return {n: task.identity for n, task in self.tasks.items()} == {n: t.identity for n, t in other.tasks.items()}


def load_tasks(
    kind: type[T], prefix: str, registry: Artifacts, alias: str, running: TaskCatalog[Held[T]] | None
) -> TaskCatalog[Held[T]]:
    """Return the tasks whose models' names begin with `prefix`. Raises as `ServedSystem.load`."""
    former, tasks = running.tasks if running else {}, dict[str, Held[T]]()
    with fetching(registry, alias, prefix) as fetcher:
        for model, version in sorted(fetcher.pointers.items()):
            name = model.removeprefix(prefix)
            if name in former and former[name].version == version:
                tasks[name] = former[name]
                continue
            folder, published = fetcher.fetch(model)
            tasks[name] = Held(codec.load(kind, folder, published.digest), version, published.digest, folder)
        if not tasks:
            raise RegistryError(f"no model {prefix}... has a version under the alias {alias}: train a task first")
        return TaskCatalog(tasks, fetcher.pointers)


def only_class(classes: set[str], profiled: str, advice: str) -> str:
    """Return the one class of device that all of `profiled` (such as "the tasks") were profiled on.

    Raises `DeviceError` with `advice` if there are several.
    """
    if len(classes) > 1:
        listed = ", ".join(sorted(classes))
        raise DeviceError(f"{profiled} were profiled on {len(classes)} classes of device ({listed}): {advice}")
    return classes.pop()


@contextmanager
def fetching(
    registry: Artifacts, alias: str, prefix: str, pointers: Mapping[str, int] | None = None
) -> Iterator[Fetcher]:
    """Give a fetcher for `pointers`, or for what `alias` points to now. If the block raises, fetched files are deleted."""
    fetcher = Fetcher(registry, alias, registry.versions(prefix, alias) if pointers is None else pointers)
    try:
        yield fetcher
    except Exception:
        for folder in fetcher.folders:
            registry.discard(folder)
        raise


def load(registry: Artifacts, kind: type[T], name: str, which: str | int) -> tuple[T, Published]:
    """Return a verified artifact, held in memory only, and its version. Raises `RegistryError` and `ArtifactError`."""
    folder, published = registry.fetch(name, which)
    try:
        return codec.load(kind, folder, published.digest), published
    finally:
        registry.discard(folder)


def discard(registry: Artifacts, unused: Catalog, *used: Catalog) -> None:
    """Delete the files that only `unused` needs."""
    for folder in unused.folders.difference(*(catalog.folders for catalog in used)):
        registry.discard(folder)


def open_registry(settings: Settings) -> Registry:
    """Return the registry that the settings name, which refuses what no trusted key signed, if there are such keys.

    Raises `InputError` for trusted keys that cannot be read.
    """
    uri, root, known = settings.registry_uri, Path(settings.artifact_root), signing(None, settings.trusted_keys)
    return MlflowRegistry(uri, settings.experiment, root, known)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """`release`: the number of the release that was loaded; None in a registry without. `fault`: what is wrong with the
    later ones, as a sentence; empty if this is the last. `created`: when the release was written (ISO 8601, UTC).
    """

    catalog: C
    release: int | None
    fault: str = ""
    created: str = ""


def released(registry: Registry, alias: str, prefix: str) -> RegistryRelease | None:
    """Return the release that the alias names; None if there is none. Raises `RegistryError`."""
    system = system_of(prefix)
    return None if system is None else registry.release(system, alias)
