"""What the packing service serves: which models, of which versions, and whether their parts belong together.

Knows the registry's names and the artifacts; knows nothing of HTTP, processes or schedules. Weights are verified here and
dropped again: the engine's process and the forecaster load them themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pliant.errors import ArtifactError, DeviceError, RegistryError
from pliant.packing.artifact import Generator, Packing, Predictor
from registry import codec
from registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from serving.lifecycle.artifacts import Registry
from serving.lifecycle.catalog import Fetcher, fetching

T = TypeVar("T", Generator, Predictor)


@dataclass(frozen=True, slots=True)
class ServedGenerator:
    """All of a generator but its weights."""

    folder: Path
    version: int
    digest: str
    config: str
    tokenizer: str
    chat_template: str
    context: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ServedPredictor:
    folder: Path
    version: int
    digest: str
    marginal: tuple[float, ...]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ServedModel:
    packing: Packing
    version: int
    digest: str
    generator: ServedGenerator
    predictor: ServedPredictor

    @property
    def mark(self) -> tuple[object, ...]:
        parts = (self, self.generator, self.predictor)
        return tuple((part.version, part.digest) for part in parts)

    @property
    def context(self) -> int:
        """Tokens of a prompt and its output: no more than the model reads, nor than the cache holds."""
        memory = self.packing.memory
        return min(self.generator.context, memory.pages * memory.page_tokens)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Models by name, and the registry's pointers that they were found by."""

    models: Mapping[str, ServedModel]
    pointers: Mapping[str, int]

    @property
    def folders(self) -> set[Path]:
        """That processes read."""
        served = self.models.values()
        return {part.folder for one in served for part in (one.generator, one.predictor)}

    @property
    def device(self) -> str:
        """The device class that all were profiled on. Raises `DeviceError` where they differ in it."""
        classes = sorted({one.packing.device_class for one in self.models.values()})
        if len(classes) > 1:
            told = ", ".join(classes)
            raise DeviceError(
                f"the models were profiled on {told}: profile them on one device (pliant profile packing)"
            )
        return classes[0]

    def serves_as(self, other: Catalog) -> bool:
        return {n: m.mark for n, m in self.models.items()} == {n: m.mark for n, m in other.models.items()}


def load_catalog(registry: Registry, alias: str, running: Catalog | None = None) -> Catalog:
    """What `alias` points to. What `running` holds already is not fetched again.

    Raises `RegistryError` for what is not there, `ArtifactError` for what cannot be used or does not belong together.
    """
    parts = (PACKING_GENERATOR, PACKING_PREDICTOR)
    with fetching(registry, alias, PACKING_PREFIX) as fetcher:
        names = sorted(name.removeprefix(PACKING_PREFIX) for name in fetcher.pointers if not name.startswith(parts))
        if not names:
            raise RegistryError(f"no model {PACKING_PREFIX}... has a version under the alias {alias}: train one first")
        loader = _Loader(fetcher, running.models if running else {})
        return Catalog({name: loader.model(name) for name in names}, fetcher.pointers)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Fetches what the running catalog lacks."""

    fetcher: Fetcher
    running: Mapping[str, ServedModel]

    def model(self, name: str) -> ServedModel:
        running = self.running.get(name)
        if running and self._versions(name) == (running.version, running.generator.version, running.predictor.version):
            return running
        packing, found = self.fetcher.load(Packing, PACKING_PREFIX + name)
        if packing.name != name:
            raise ArtifactError(f"{found.name} holds a plan that calls itself {packing.name}, but should be {name}")
        generator = self._generator(packing, running)
        return ServedModel(packing, found.version, found.digest, generator, self._predictor(packing, running))

    def _generator(self, packing: Packing, running: ServedModel | None) -> ServedGenerator:
        name = PACKING_GENERATOR + packing.name
        if running and self._holds(name, packing.generator, running.generator):
            return running.generator
        made, where = self._part(Generator, name, packing.generator)
        texts = made.config, made.tokenizer, made.chat_template
        return ServedGenerator(*where, *texts, made.context, made.ends)

    def _predictor(self, packing: Packing, running: ServedModel | None) -> ServedPredictor:
        name = PACKING_PREDICTOR + packing.name
        if running and self._holds(name, packing.predictor, running.predictor):
            return running.predictor
        made, where = self._part(Predictor, name, packing.predictor)
        if made.generator not in ("", packing.generator):
            raise ArtifactError(
                f"{name} predicts the lengths of generator {made.generator[:12]}: train one for this one"
            )
        return ServedPredictor(*where, made.marginal, made.metrics)

    def _part(self, kind: type[T], name: str, digest: str) -> tuple[T, tuple[Path, int, str]]:
        """Verified, and where it lies. Raises `ArtifactError` for another one than was planned with."""
        if name not in self.fetcher.pointers:
            raise ArtifactError(f"{name} has no version under the alias {self.fetcher.alias}")
        folder, found = self.fetcher.fetch(name)
        if found.digest != digest:
            raise ArtifactError(
                f"a model was planned with {digest[:12]} of {name}, but its {self.fetcher.alias} (version "
                f"{found.version}) is {found.digest[:12]}: promote the plan that was made with it"
            )
        return codec.load(kind, folder, digest), (folder, found.version, digest)

    def _holds(self, name: str, digest: str, part: ServedGenerator | ServedPredictor) -> bool:
        return (part.digest, part.version) == (digest, self.fetcher.pointers.get(name))

    def _versions(self, name: str) -> tuple[Any, ...]:
        return tuple(
            self.fetcher.pointers.get(prefix + name)
            for prefix in (PACKING_PREFIX, PACKING_GENERATOR, PACKING_PREDICTOR)
        )
