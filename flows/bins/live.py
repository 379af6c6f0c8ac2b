"""What of the bins system is live in the registry, and what its versions remember of how they were made."""

from __future__ import annotations

import json
from dataclasses import dataclass

from flows import release
from flows.bins.config import EdgesConfig, EngineConfig
from flows.live import champions, record_of, version_of
from flows.release import TRAINING
from flows.settings import Settings
from pliant.bins.artifact import Bins, Encoder
from profiling.bins.latency import LatencyConfig
from registry import codec
from registry.mlflow_store import MlflowRegistry
from registry.names import BINS_ENCODER, BINS_PREFIX, experiment
from registry.package import Published

VERSION = "pliant.encoder"
"""Tag of a version of bins: the number of the version of its encoder's model."""


@dataclass(frozen=True, slots=True)
class Record:
    """What bins were chosen with: enough to choose them again on another device."""

    engine: EngineConfig
    latency: LatencyConfig
    edges: EdgesConfig
    threads: int


@dataclass(frozen=True, slots=True)
class Score:
    """How often a classifier was right on texts that it had not seen."""

    accuracy: float
    data: str  # fingerprint


@dataclass(frozen=True, slots=True)
class Live:
    """A stream as it is served now."""

    bins: Bins
    published: Published

    @property
    def record(self) -> Record:
        return record_of(Record, self.published, "bins")


def encoder_model(name: str) -> str:
    """The registered model of a stream's encoder."""
    return BINS_ENCODER + name


def open_registry(settings: Settings) -> MlflowRegistry:
    return release.open_registry(settings, experiment("bins"))


def live(registry: MlflowRegistry) -> dict[str, Live]:
    """Every stream with a champion, by name; nothing before the first release."""
    return {
        bins.name: Live(bins, version) for bins, version in champions(registry, Bins, BINS_PREFIX, encoder_model(""))
    }


def champion(settings: Settings) -> dict[str, Bins]:
    """What is served now, by stream."""
    return {name: one.bins for name, one in live(open_registry(settings)).items()}


def encoder(registry: MlflowRegistry, one: Live) -> tuple[Encoder, int]:
    """That which the bins were chosen for, and its version. Raises `RegistryError`, `ArtifactError`."""
    version = version_of(one.published, VERSION, "bins")
    folder, _ = registry.fetch(encoder_model(one.bins.name), version)
    return codec.load(Encoder, folder, one.bins.encoder), version


def score(registry: MlflowRegistry, one: Live) -> Score | None:
    """Of the champion's encoder, where it was tested."""
    version = int(one.published.tags.get(VERSION, 0))
    found = registry.fetch(encoder_model(one.bins.name), version)[1] if version else None
    notes = json.loads(found.tags.get(TRAINING, "{}")) if found else {}
    return Score(**notes["score"]) if "score" in notes else None
