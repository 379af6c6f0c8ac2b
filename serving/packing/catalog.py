"""The artifacts that the packing service serves, their versions, and whether they fit each other.

A model is a generator of text, a predictor of output lengths, and a plan. Weights are verified here and not kept: the
engine's process and the forecaster load them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from pliant.errors import ArtifactError, RegistryError
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.registry import codec
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, fetching, only_class

T = TypeVar("T", Generator, Predictor)


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A generator or a predictor without its weights, which a process of its own reads from the folder."""

    artifact: T
    folder: Path
    version: int
    digest: str


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with the versions of its parts."""

    packing: Packing  # the plan
    version: int
    digest: str
    generator: Part[Generator]
    predictor: Part[Predictor]

    @property
    def identity(self) -> tuple[object, ...]:
        """Return versions and digests: equal if the same artifacts are served."""
        parts = (self, self.generator, self.predictor)
        return tuple((part.version, part.digest) for part in parts)

    @property
    def context(self) -> int:
        """Return how many tokens a prompt and its output may have: what the model reads and the cache holds."""
        memory = self.packing.memory
        return min(self.generator.artifact.context, memory.pages * memory.page_tokens)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Models by name, and the versions that they were loaded by."""

    models: Mapping[str, ServedModel]
    pointers: Mapping[str, int]

    @property
    def folders(self) -> set[Path]:
        """The folders that processes read."""
        served = self.models.values()
        return {part.folder for model in served for part in (model.generator, model.predictor)}

    @property
    def device(self) -> str:
        """The class of device that all models were profiled on. Raises `DeviceError` if there are several."""
        classes = {model.packing.device_class for model in self.models.values()}
        return only_class(classes, "the models", "profile them on one (pliant profile packing)")

    def serves_as(self, other: Catalog) -> bool:
        """Whether both serve the same artifacts under the same versions."""
        return {n: m.identity for n, m in self.models.items()} == {n: m.identity for n, m in other.models.items()}


def load_catalog(registry: Artifacts, alias: str, running: Catalog | None = None) -> Catalog:
    """Return what `alias` points to. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used or does not fit together.
    """
    parts = (PACKING_GENERATOR, PACKING_PREDICTOR)
    with fetching(registry, alias, PACKING_PREFIX) as fetcher:
        names = sorted(name.removeprefix(PACKING_PREFIX) for name in fetcher.pointers if not name.startswith(parts))
        if not names:
            raise RegistryError(f"no model {PACKING_PREFIX}... has a version under the alias {alias}: train one first")
        present = running.models if running else {}
        return Catalog({name: _load(fetcher, name, present.get(name)) for name in names}, fetcher.pointers)


def _load(fetcher: Fetcher, name: str, running: ServedModel | None) -> ServedModel:
    """Return a model; what the running one has already is not fetched."""
    versions = fetcher.versions(PACKING_PREFIX + name, PACKING_GENERATOR + name, PACKING_PREDICTOR + name)
    if running and versions == (running.version, running.generator.version, running.predictor.version):
        return running
    packing, published = fetcher.load(Packing, PACKING_PREFIX + name)
    if packing.name != name:
        raise ArtifactError(f"{published.name} holds a plan that calls itself {packing.name}, but should be {name}")

    def part(kind: type[T], name: str, digest: str, running: Part[T] | None) -> Part[T]:
        """Return a verified artifact. Raises `ArtifactError` if it is not the one that the plan was made with."""
        if running and (running.digest, running.version) == (digest, fetcher.pointers.get(name)):
            return running
        if name not in fetcher.pointers:
            raise ArtifactError(f"{name} has no version under the alias {fetcher.alias}")
        folder, published = fetcher.fetch(name)
        if published.digest != digest:
            raise ArtifactError(
                f"a model was planned with {digest[:12]} of {name}, but its {fetcher.alias} (version "
                f"{published.version}) is {published.digest[:12]}: promote the plan that was made with it"
            )
        artifact: T = replace(codec.load(kind, folder, digest), weights={})
        return Part(artifact, folder, published.version, digest)

    names = PACKING_GENERATOR + name, PACKING_PREDICTOR + name
    generator = part(Generator, names[0], packing.generator, running.generator if running else None)
    predictor = part(Predictor, names[1], packing.predictor, running.predictor if running else None)
    learnt = predictor.artifact.generator
    if learnt not in ("", packing.generator):
        raise ArtifactError(
            f"{names[1]} predicts lengths of generator {learnt[:12]}, but this is "
            f"{packing.generator[:12]}: train a predictor for it"
        )
    return ServedModel(packing, published.version, published.digest, generator, predictor)
