"""The artifacts that the packing service serves, their versions, and whether they fit each other.

A model is a generator of text, a predictor of output lengths, and a plan. Weights are verified here and not kept: the
engine's process and the forecaster load them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pliant.errors import ArtifactError, RegistryError
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.registry import codec
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, fetching, only_class

T = TypeVar("T", Generator, Predictor)


@dataclass(frozen=True, slots=True)
class ServedGenerator:
    """A generator without its weights, which the engine's process reads from the folder."""

    folder: Path
    version: int
    digest: str
    config: str
    tokenizer: str
    chat_template: str
    context: int  # tokens of a prompt and its output that it can read
    ends: tuple[int, ...]  # tokens that end an output
    sampling: Mapping[str, float] = field(default_factory=dict)  # a request's field -> its default for this model
    chat_templates: Mapping[str, str] = field(default_factory=dict)  # further ones by name
    special_tokens: Mapping[str, str] | None = None  # by their names in templates


@dataclass(frozen=True, slots=True)
class ServedPredictor:
    """A predictor without its weights, which the forecaster reads from the folder."""

    folder: Path
    version: int
    digest: str
    marginal: tuple[float, ...]  # quantiles of all lengths, in tokens
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with the versions of its parts."""

    packing: Packing  # the plan
    version: int
    digest: str
    generator: ServedGenerator
    predictor: ServedPredictor

    @property
    def identity(self) -> tuple[object, ...]:
        """Return versions and digests: equal if the same artifacts are served."""
        parts = (self, self.generator, self.predictor)
        return tuple((part.version, part.digest) for part in parts)

    @property
    def context(self) -> int:
        """Return how many tokens a prompt and its output may have: what the model reads and the cache holds."""
        memory = self.packing.memory
        return min(self.generator.context, memory.pages * memory.page_tokens)


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
        loader = _Loader(fetcher, running.models if running else {})
        return Catalog({name: loader.model(name) for name in names}, fetcher.pointers)


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads models, and fetches what the running catalog lacks."""

    fetcher: Fetcher
    running: Mapping[str, ServedModel]

    def model(self, name: str) -> ServedModel:
        running = self.running.get(name)
        versions = self.fetcher.versions(PACKING_PREFIX + name, PACKING_GENERATOR + name, PACKING_PREDICTOR + name)
        if running and versions == (running.version, running.generator.version, running.predictor.version):
            return running
        packing, published = self.fetcher.load(Packing, PACKING_PREFIX + name)
        if packing.name != name:
            raise ArtifactError(f"{published.name} holds a plan that calls itself {packing.name}, but should be {name}")
        generator = self._generator(packing, running)
        return ServedModel(packing, published.version, published.digest, generator, self._predictor(packing, running))

    def _generator(self, packing: Packing, running: ServedModel | None) -> ServedGenerator:
        name = PACKING_GENERATOR + packing.name
        if running and self._is_current(name, packing.generator, running.generator):
            return running.generator
        generator, origin = self._part(Generator, name, packing.generator)
        return ServedGenerator(
            *origin,
            generator.config,
            generator.tokenizer,
            generator.chat_template,
            generator.context,
            generator.ends,
            generator.sampling,
            generator.chat_templates,
            generator.special_tokens,
        )

    def _predictor(self, packing: Packing, running: ServedModel | None) -> ServedPredictor:
        name = PACKING_PREDICTOR + packing.name
        if running and self._is_current(name, packing.predictor, running.predictor):
            return running.predictor
        predictor, origin = self._part(Predictor, name, packing.predictor)
        if predictor.generator not in ("", packing.generator):
            raise ArtifactError(
                f"{name} predicts lengths of generator {predictor.generator[:12]}, but this is "
                f"{packing.generator[:12]}: train a predictor for it"
            )
        return ServedPredictor(*origin, predictor.marginal, predictor.metrics)

    def _part(self, kind: type[T], name: str, digest: str) -> tuple[T, tuple[Path, int, str]]:
        """Return a verified artifact, and its folder, version and digest.

        Raises `ArtifactError` if it is not the one that the plan was made with.
        """
        if name not in self.fetcher.pointers:
            raise ArtifactError(f"{name} has no version under the alias {self.fetcher.alias}")
        folder, published = self.fetcher.fetch(name)
        if published.digest != digest:
            raise ArtifactError(
                f"a model was planned with {digest[:12]} of {name}, but its {self.fetcher.alias} (version "
                f"{published.version}) is {published.digest[:12]}: promote the plan that was made with it"
            )
        return codec.load(kind, folder, digest), (folder, published.version, digest)

    def _is_current(self, name: str, digest: str, part: ServedGenerator | ServedPredictor) -> bool:
        return (part.digest, part.version) == (digest, self.fetcher.pointers.get(name))
