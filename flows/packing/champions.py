"""The champions of the packing system in the registry, how they were made, and which folders they need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pliant.flows.champions import Champion, fetch
from pliant.flows.packing.config import MemoryConfig, PlanConfig
from pliant.flows.settings import Settings
from pliant.packing.artifact import Generator, Packing, Predictor
from pliant.packing.scheduling.reference import ReferenceConfig
from pliant.packing.vllm import FOLDER, folder_of
from pliant.profiling.packing.steps import StepsConfig
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import PACKING_GENERATOR, PACKING_PREDICTOR

GENERATOR, PREDICTOR = "pliant.generator", "pliant.predictor"
"""Tags of a plan's version: the numbers of the versions of its generator's and its predictor's models."""
ORIGIN = "pliant.origin"
"""Tag of a version of a plan that was measured or trained further from another: that one's digest."""

FOLDERS = f"{FOLDER}/*"
"""Generators in PLIANT_HOME that were written for vLLM, which go with the versions that they are of (flows/retention.py)."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a plan was made with: enough to make it again on another device or with another predictor."""

    memory: MemoryConfig
    steps: StepsConfig
    plan: PlanConfig
    reference: ReferenceConfig
    threads: int


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


def used(settings: Settings, registry: MlflowRegistry, name: str, number: int) -> Iterator[Path]:
    """Yield the folder of a version of a generator."""
    published = registry.version(name, number) if name.startswith(PACKING_GENERATOR) else None
    if published is not None:
        yield folder_of(settings.home, published.digest)
