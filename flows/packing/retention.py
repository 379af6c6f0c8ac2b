"""Generators that were written for vLLM and that no registered version needs any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pliant.flows.settings import Settings
from pliant.packing.vllm import FOLDER, folder_of
from pliant.registry.mlflow_retention import DAY
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import PACKING_GENERATOR


def unused_folders(settings: Settings, registry: MlflowRegistry, going: frozenset[tuple[str, ...]]) -> Iterator[Path]:
    """Yield the folders of models that are no version's, except versions in `going` (model and number).

    Folders younger than a day are kept: something may run that a file alone describes.
    """
    folders = settings.home / FOLDER
    if not folders.is_dir():
        return
    used = {
        folder_of(settings.home, published.digest)
        for name in (registry.names(PACKING_GENERATOR) if registry.exists() else ())
        for number in registry.numbers(name)
        if (name, str(number)) not in going and (published := registry.version(name, number)) is not None
    }
    for folder in sorted(folders.iterdir()):
        if folder not in used and time.time() - folder.stat().st_mtime > DAY:
            yield folder
