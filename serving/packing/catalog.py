"""The artifacts that the packing service serves, their versions, and whether they fit each other.

A model is a generator of text, a predictor of output lengths, and a plan. Weights are verified here and not kept: the
engine's process and the forecaster load them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pliant.errors import ArtifactError, RegistryError
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX
from pliant.serving.lifecycle.catalog import Artifacts, Fetcher, Held, TaskCatalog, fetching


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model with the versions of its parts, which processes of their own read from their folders."""

    packing: Packing  # the plan
    version: int
    digest: str
    generator: Held[Generator]
    predictor: Held[Predictor]

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.version, self.digest), self.generator.identity, self.predictor.identity

    @property
    def folders(self) -> set[Path]:
        return self.generator.folders | self.predictor.folders

    @property
    def device(self) -> str:
        return self.packing.device_class

    @property
    def context(self) -> int:
        """Return how many tokens a prompt and its output may have: what the model reads and the cache holds."""
        memory = self.packing.memory
        return min(self.generator.artifact.context, memory.pages * memory.page_tokens)


@dataclass(frozen=True, slots=True)
class Catalog(TaskCatalog[ServedModel]):
    """A catalog of models."""

    WHAT: ClassVar[tuple[str, str]] = "the models", "profile them on one (pliant profile packing)"


def load_catalog(registry: Artifacts, alias: str, running: Catalog | None = None) -> Catalog:
    """Return what `alias` points to. Artifacts that `running` has are not fetched again.

    Raises `RegistryError` for what is missing, `ArtifactError` for what cannot be used or does not fit together.
    """
    parts = (PACKING_GENERATOR, PACKING_PREDICTOR)
    with fetching(registry, alias, PACKING_PREFIX) as fetcher:
        names = sorted(name.removeprefix(PACKING_PREFIX) for name in fetcher.pointers if not name.startswith(parts))
        if not names:
            raise RegistryError(f"no model {PACKING_PREFIX}... has a version under the alias {alias}: train one first")
        present = running.tasks if running else {}
        return Catalog({name: _load(fetcher, name, present.get(name)) for name in names}, fetcher.pointers)


def _load(fetcher: Fetcher, name: str, running: ServedModel | None) -> ServedModel:
    """Return a model; what the running one has already is not fetched."""
    versions = fetcher.versions(PACKING_PREFIX + name, PACKING_GENERATOR + name, PACKING_PREDICTOR + name)
    if running and versions == (running.version, running.generator.version, running.predictor.version):
        return running
    packing, published = fetcher.load(Packing, PACKING_PREFIX + name)
    if packing.name != name:
        raise ArtifactError(f"{published.name} holds a plan that calls itself {packing.name}, but should be {name}")
    names, owner = (PACKING_GENERATOR + name, PACKING_PREDICTOR + name), f"model {name}"
    former = (running.generator, running.predictor) if running else (None, None)
    generator = fetcher.held(Generator, names[0], packing.generator, owner, "generator", former[0])
    predictor = fetcher.held(Predictor, names[1], packing.predictor, owner, "predictor", former[1])
    learnt = predictor.artifact.generator
    if learnt not in ("", packing.generator):
        raise ArtifactError(
            f"{names[1]} predicts lengths of generator {learnt[:12]}, but this is "
            f"{packing.generator[:12]}: train a predictor for it"
        )
    return ServedModel(packing, published.version, published.digest, generator, predictor)
