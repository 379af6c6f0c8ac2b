"""What of the packing system is live in the registry, and what its versions remember of how they were made."""

from __future__ import annotations

from dataclasses import dataclass

from flows import release
from flows.live import champions, record_of, version_of
from flows.packing.config import MemoryConfig, PlanConfig
from flows.settings import Settings
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.scheduling.reference import ReferenceConfig
from profiling.packing.steps import StepsConfig
from registry import codec
from registry.mlflow_store import MlflowRegistry
from registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX, experiment
from registry.package import Published

GENERATOR, PREDICTOR = "pliant.generator", "pliant.predictor"
"""Tags of a plan's version: the numbers of the versions of its generator's and its predictor's models."""
ORIGIN = "pliant.origin"
"""Tag of a version of a plan that was measured or trained further from another: that one's digest."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a plan was made with: enough to make it again on another device or with another predictor."""

    memory: MemoryConfig
    steps: StepsConfig
    plan: PlanConfig
    reference: ReferenceConfig
    threads: int


@dataclass(frozen=True, slots=True)
class Live:
    """A model as it is served now."""

    packing: Packing
    published: Published

    @property
    def record(self) -> Record:
        return record_of(Record, self.published, "packing")

    @property
    def origin(self) -> str:
        """Digest of the plan that the flow made from the beginning, and that this one descends from: maybe this one."""
        return self.published.tags.get(ORIGIN) or self.published.digest

    def version(self, tag: str) -> int:
        """Of the generator's or the predictor's model (GENERATOR, PREDICTOR). Raises `RegistryError`."""
        return version_of(self.published, tag, "packing")


def generator_model(name: str) -> str:
    """The registered model of a generator."""
    return PACKING_GENERATOR + name


def predictor_model(name: str) -> str:
    """The registered model of a predictor."""
    return PACKING_PREDICTOR + name


def open_registry(settings: Settings) -> MlflowRegistry:
    return release.open_registry(settings, experiment("packing"))


def live(registry: MlflowRegistry) -> dict[str, Live]:
    """Every model with a champion, by name; nothing before the first release."""
    found = champions(registry, Packing, PACKING_PREFIX, generator_model(""), predictor_model(""))
    return {packing.name: Live(packing, published) for packing, published in found}


def champion(settings: Settings) -> dict[str, Packing]:
    """What is served now, by name."""
    return {name: one.packing for name, one in live(open_registry(settings)).items()}


def generator(registry: MlflowRegistry, one: Live) -> Generator:
    """That which the plan was made for. Raises `RegistryError`, `ArtifactError`."""
    folder, _ = registry.fetch(generator_model(one.packing.name), one.version(GENERATOR))
    return codec.load(Generator, folder, one.packing.generator)


def predictor(registry: MlflowRegistry, one: Live) -> Predictor:
    """That whose forecasts the plan holds. Raises `RegistryError`, `ArtifactError`."""
    folder, _ = registry.fetch(predictor_model(one.packing.name), one.version(PREDICTOR))
    return codec.load(Predictor, folder, one.packing.predictor)
