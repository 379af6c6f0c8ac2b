"""The registry, as far as a service needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pliant.registry import webhooks
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Published
from pliant.registry.releases import RegistryRelease
from pliant.registry.signing.signatures import signing

if TYPE_CHECKING:  # device processes come by here, on machines without pydantic, too
    from pliant.serving.settings import Settings


class Artifacts(Protocol):
    """The methods that catalogs are loaded by: of a registry, or of the view of it that a release gives."""

    def fetch(self, name: str, which: str | int) -> tuple[Path, Published]: ...
    def version(self, name: str, alias: str) -> Published | None: ...
    def versions(self, prefix: str, alias: str) -> Mapping[str, int]: ...
    def names(self, prefix: str) -> list[str]: ...
    def discard(self, folder: Path) -> None: ...


class Registry(Artifacts, Protocol):
    """The methods of registry/mlflow_store.py that serving uses."""

    def aliases(self, prefix: str, alias: str) -> Mapping[str, int]: ...
    def release(self, system: str, which: str | int) -> RegistryRelease | None: ...
    def identity(self) -> str: ...
    def bell(self, system: str) -> Callable[[], object] | None: ...


def open_registry(settings: Settings) -> Registry:
    """Return the registry that the settings name, which refuses what no trusted key signed, if there are such keys.

    Raises `InputError` for trusted keys that cannot be read.
    """
    known = signing(None, settings.trusted_keys)
    return MlflowRegistry(settings.registry_uri, settings.experiment, Path(settings.artifact_root), known)


def register_webhook(registry: Registry, settings: Settings) -> None:
    """Have the tracking server tell this service of releases, if the settings say where it is.

    Raises `InputError` for a short secret, `RegistryError` where the registry is no tracking server, or refuses.
    """
    if settings.webhook_url and isinstance(registry, MlflowRegistry):
        webhooks.register(registry, settings.system, settings.webhook_url, settings.webhook_secret)
