"""What Pliant keeps on disk and in the registry, and what it removes. Knows no system and no Prefect.

Every flow ends with it (`after_flow`), so that nothing grows for ever; `pliant clean` shows it and does it on demand.
Nothing that an alias needs is ever removed: not its version, nor what that one names, nor its compiled files. Results of
stages are removed only when they have not been used for long or take too much room; a flow computes them again if needed.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pliant import systems, temporary
from pliant.errors import PliantError
from pliant.flows.release import open_registry
from pliant.flows.settings import Settings
from pliant.progress import Progress
from pliant.registry import mlflow_retention
from pliant.registry.codec import DIGESTS
from pliant.registry.folder import size_of
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.names import prefix
from pliant.settings import FlowSettings

logger = logging.getLogger("pliant.flows")

DAY = mlflow_retention.DAY
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Item:
    """Something to remove: what it is, its size in bytes (0: elsewhere than on this disk), why, and how to remove it."""

    what: str
    size: int
    reason: str
    remove: Callable[[], None]


def survey(settings: Settings, keep: FlowSettings, names: Iterable[str]) -> list[Item]:
    """Return what can go of these systems, and of what all systems share. Raises `RegistryError`, `ArtifactError`."""
    items: list[Item] = []
    for name in names:
        registry = open_registry(settings, name)
        unneeded = mlflow_retention.unneeded(registry, prefix(name), keep.keep_versions, keep.keep_days)
        for item in unneeded:
            items.append(Item(item.name, item.size, item.reason, partial(mlflow_retention.remove, registry, item)))
        system = systems.system(name)
        part = system.part("flows", "champions") if system.has("flows", "champions") else None
        if hasattr(part, "FOLDERS"):
            going = {item.ids[:2] for item in unneeded if item.kind == "version"}
            unused = unused_folders(settings, registry, name, part, going)
            items += [_folder(folder, "no version needs it") for folder in unused]
    items += _stored(settings.store, keep)
    return items + [_folder(path, "its process was killed") for path in temporary.abandoned()]


def remove(items: Iterable[Item], progress: Progress) -> int:
    """Remove them and return how many could not be, each with a line in the log."""
    listed, failed = list(items), 0
    for done, item in enumerate(listed, start=1):
        try:
            item.remove()
        except (PliantError, OSError) as error:
            failed += 1
            logger.warning("%s could not be removed: %s", item.what, error)
        progress(done, len(listed))
    return failed


def after_flow(settings: Settings, system: str) -> None:
    """Remove what a system's flow leaves behind beyond the limits. Never fails the flow: the log says what could not be."""
    try:
        items = survey(settings, FlowSettings.read(), [system])
    except (PliantError, OSError) as error:
        logger.warning("nothing was cleaned up: %s", error)
        return
    failed = remove(items, lambda _done, _total: None)
    if items:
        size = sum(item.size for item in items) / 1e6
        logger.info("removed what is no longer needed: %d items, %.1f MB", len(items) - failed, size)


def unused_folders(
    settings: Settings, registry: MlflowRegistry, name: str, part: Any, going: Collection[Any]
) -> Iterator[Path]:
    """Yield the folders of a system in PLIANT_HOME that no version uses, except those in `going` (model and number).

    Folders younger than a day are kept: their version may not be registered yet, or something runs that a file describes.
    """
    folders = sorted(settings.home.glob(part.FOLDERS))
    used = {
        folder
        for model in (registry.names(prefix(name)) if folders and registry.exists() else ())
        for number in registry.numbers(model)
        if (model, str(number)) not in going
        for folder in part.used(settings, registry, model, number)
    }
    yield from (each for each in folders if each not in used and time.time() - each.stat().st_mtime > DAY)


def _stored(root: Path, keep: FlowSettings) -> Iterator[Item]:
    """Yield results of stages that nobody has used for long, and the least recently used beyond the size limit."""
    marks = root.rglob(DIGESTS) if root.is_dir() else ()
    entries = sorted((mark.stat().st_mtime, mark.parent) for mark in marks)
    sizes = {folder: size_of(folder) for _, folder in entries}
    total = sum(sizes.values())
    for used, folder in entries:  # the least recently used first
        age = time.time() - used
        full = total > keep.store_gib * GIB
        if age > DAY and (full or age > keep.keep_days * DAY):
            total -= sizes[folder]
            why = f"the store holds more than {keep.store_gib:g} GiB" if full else f"not used for {age / DAY:.0f} days"
            yield _folder(folder, why)


def _folder(path: Path, reason: str) -> Item:
    remove = partial(shutil.rmtree, path) if path.is_dir() else partial(path.unlink, missing_ok=True)
    return Item(str(path), size_of(path), reason, remove)
