"""The champions of the packing system in the registry, and what their versions remember of how they were made."""

from __future__ import annotations

from dataclasses import dataclass

from pliant.flows import champions
from pliant.flows.champions import Champion, fetch
from pliant.flows.packing.config import MemoryConfig, PlanConfig
from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.profiling.packing.steps import StepsConfig
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR, PACKING_PREFIX

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


def load_champions(registry: MlflowRegistry) -> dict[str, Champion[Packing]]:
    """Return every model with a champion, by name; nothing before the first release."""
    apart = (PACKING_GENERATOR, PACKING_PREDICTOR)
    return champions.load_champions(registry, "packing", Packing, PACKING_PREFIX, *apart)


def champion_artifacts(settings: Settings) -> dict[str, Packing]:
    """Return the plans that are served now, by name."""
    return {name: champion.artifact for name, champion in load_champions(open_registry(settings, "packing")).items()}


def origin_of(champion: Champion[Packing]) -> str:
    """Return the digest of the plan that the flow made first, and that this one descends from: maybe its own."""
    return champion.published.tags.get(ORIGIN) or champion.published.digest


def fetch_generator(registry: MlflowRegistry, champion: Champion[Packing]) -> Generator:
    """Return the generator that the plan was made for. Raises `RegistryError`, `ArtifactError`."""
    packing, version = champion.artifact, champion.version(GENERATOR)
    return fetch(registry, Generator, PACKING_GENERATOR + packing.name, version, packing.generator)[0]


def fetch_predictor(registry: MlflowRegistry, champion: Champion[Packing]) -> Predictor:
    """Return the predictor whose forecasts the plan holds. Raises `RegistryError`, `ArtifactError`."""
    packing, version = champion.artifact, champion.version(PREDICTOR)
    return fetch(registry, Predictor, PACKING_PREDICTOR + packing.name, version, packing.predictor)[0]
