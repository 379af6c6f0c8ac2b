"""Compiled files of bins, which go with the versions that need them (flows/retention.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder
from pliant.flows.settings import Settings
from pliant.registry import codec
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX

FOLDERS = "compiled/*/*/*"


def used(settings: Settings, registry: MlflowRegistry, name: str, number: int) -> Iterator[Path]:
    """Yield the folders that a version needs."""
    if name.startswith(BINS_ENCODER) or not name.startswith(BINS_PREFIX):
        return
    folder, published = registry.fetch(name, number)
    bins = codec.load(Bins, folder, published.digest)
    registry.discard(folder)
    cache = cache_folder(settings.home, bins.encoder, bins.device_class)
    yield from (cache / Path(file).parts[0] for file in bins.files)
