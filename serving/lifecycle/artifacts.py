"""Where a service gets its artifacts from. Knows the registry by what serving needs of it, and its address."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from registry.mlflow_store import MlflowRegistry
from registry.package import Published
from serving.settings import Settings


class Registry(Protocol):
    """The part of registry/mlflow_store.py that serving needs."""

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]: ...
    def version(self, name: str, alias: str) -> Published | None: ...
    def versions(self, prefix: str, alias: str) -> Mapping[str, int]: ...
    def names(self, prefix: str) -> list[str]: ...
    def discard(self, folder: Path) -> None: ...


def open_registry(settings: Settings) -> Registry:
    return MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root))
