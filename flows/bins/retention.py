"""Compiled files of bins that no registered version needs any more."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from pliant.bins.artifact import Bins
from pliant.bins.runtimes.cache import cache_folder
from pliant.flows.settings import Settings
from pliant.registry import codec
from pliant.registry.mlflow_retention import DAY
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import BINS_ENCODER, BINS_PREFIX


def unused_folders(settings: Settings, registry: MlflowRegistry, going: frozenset[tuple[str, ...]]) -> Iterator[Path]:
    """Yield the folders of compiled files that no version needs, except those in `going` (model and number).

    Folders younger than a day are kept, since their version may not be registered yet.
    """
    used = _used(settings, registry, going)
    compiled = settings.home / "compiled"
    for folder in sorted(compiled.glob("*/*/*")) if compiled.is_dir() else ():
        if folder not in used and time.time() - folder.stat().st_mtime > DAY:
            yield folder


def _used(settings: Settings, registry: MlflowRegistry, going: frozenset[tuple[str, ...]]) -> set[Path]:
    used: set[Path] = set()
    for name in registry.names(BINS_PREFIX) if registry.exists() else ():
        if name.startswith(BINS_ENCODER):
            continue
        for number in registry.numbers(name):
            if (name, str(number)) not in going:
                folder, published = registry.fetch(name, number)
                bins = codec.load(Bins, folder, published.digest)
                registry.discard(folder)
                cache = cache_folder(settings.home, bins.encoder, bins.device_class)
                used |= {cache / Path(file).parts[0] for file in bins.files}
    return used
