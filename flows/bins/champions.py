"""The champions of the bins system in the registry, how they were made, and which compiled files they need."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pliant.bins.artifact import Bins, Encoder
from pliant.bins.runtimes.cache import cache_folder
from pliant.flows.bins.config import EdgesConfig, EngineConfig
from pliant.flows.champions import Champion, fetch
from pliant.flows.release import TRAINING, retried
from pliant.flows.settings import Settings
from pliant.profiling.bins.latency import LatencyConfig
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX

VERSION = "pliant.encoder"
"""Tag of a version of bins: the number of the version of its encoder's model."""
SCORE = "pliant.score"
"""Tag of a version of bins: the test score of its encoder in the precision of the bins, as JSON; null without a test."""

FOLDERS = "compiled/*/*/*"
"""Compiled files in PLIANT_HOME, which go with the versions that need them (flows/retention.py)."""


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


def fetch_encoder(registry: MlflowRegistry, champion: Champion[Bins]) -> tuple[Encoder, int]:
    """Return the encoder that the bins were chosen for, and its version. Raises `RegistryError`, `ArtifactError`."""
    bins, version = champion.artifact, champion.version(VERSION)
    return fetch(registry, Encoder, BINS_ENCODER + bins.name, version, bins.encoder)[0], version


def fetch_score(registry: MlflowRegistry, champion: Champion[Bins]) -> Score | None:
    """Return the test score of the champion's encoder, in the bins' precision; None where it was not tested."""
    if SCORE in champion.published.tags:
        score = json.loads(champion.published.tags[SCORE])
        return Score(**score) if score else None
    return fetch_float32_score(registry, champion)


def fetch_float32_score(registry: MlflowRegistry, champion: Champion[Bins]) -> Score | None:
    """Return the test score of the champion's encoder in float32; None where it was not tested."""
    version = int(champion.published.tags.get(VERSION, 0))
    name = BINS_ENCODER + champion.artifact.name
    encoder = retried(lambda: registry.fetch(name, version))[1] if version else None
    notes = json.loads(encoder.tags.get(TRAINING, "{}")) if encoder else {}
    return Score(**notes["score"]) if "score" in notes else None


def used(settings: Settings, registry: MlflowRegistry, name: str, number: int) -> Iterator[Path]:
    """Yield the folders of compiled files that a version needs."""
    if name.startswith(BINS_ENCODER) or not name.startswith(BINS_PREFIX):
        return
    folder, published = registry.fetch(name, number)
    bins = codec.load(Bins, folder, published.digest)
    registry.discard(folder)
    cache = cache_folder(settings.home, bins.encoder, bins.device_class)
    yield from (cache / Path(file).parts[0] for file in bins.files)
