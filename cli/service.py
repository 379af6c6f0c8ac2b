"""The settings of a service that serves from this project's registry."""

from __future__ import annotations

from typing import TypeVar

from pliant.flows import settings
from pliant.serving.settings import Settings

S = TypeVar("S", bound=Settings)


def service_settings(project: settings.Settings, kind: type[S], **options: object) -> S:
    """Return a service's settings for the registry of `project`; `options` as in `serving/<system>/settings.py`.

    Raises `InputError` for an option that the system does not have.
    """
    registry = {"registry_uri": project.tracking_uri, "artifact_root": str(project.artifact_root), "home": project.home}
    return kind(**{"threads": 1, **options, **registry})  # type: ignore[arg-type]
