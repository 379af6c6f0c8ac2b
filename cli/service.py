"""The settings of a service that serves from this project's registry."""

from __future__ import annotations

from flows import settings
from registry.names import experiment
from serving.settings import Settings


def service_settings(told: settings.Settings, system: str, **options: object) -> Settings:
    """The service's settings for this project's registry; `options` as in serving/settings.py."""
    where = {
        "system": system,
        "registry_uri": told.tracking_uri,
        "experiment": experiment(system),
        "artifact_root": str(told.artifact_root),
        "threads": 1,
        "home": told.home,
    }
    return Settings(**{**where, **options})  # type: ignore[arg-type]
