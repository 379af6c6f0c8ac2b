"""Generators that were written for vLLM, which go with the versions that they are of (flows/retention.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pliant.flows.settings import Settings
from pliant.packing.vllm import FOLDER, folder_of
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import PACKING_GENERATOR

FOLDERS = f"{FOLDER}/*"


def used(settings: Settings, registry: MlflowRegistry, name: str, number: int) -> Iterator[Path]:
    """Yield the folder of a version of a generator."""
    published = registry.version(name, number) if name.startswith(PACKING_GENERATOR) else None
    if published is not None:
        yield folder_of(settings.home, published.digest)
