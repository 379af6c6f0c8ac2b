"""Looks up models and versions with MLflow's client: what is not there is None and no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.package import Published

DIGEST, KIND = "pliant.digest", "pliant.kind"
"""Tags of a version: what its artifact is known by, and what it is."""


def ensure_model(client: Any, name: str, about: str | None = None) -> None:
    """Create a registered model where it is missing."""
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name, description=about)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def find_model(client: Any, name: str) -> Any:
    """Return a registered model as MLflow's entity, or None."""
    return _unless_missing(lambda: client.get_registered_model(name))


def find_version(client: Any, name: str, number: int) -> Any:
    """Return a version as MLflow's entity, or None."""
    return _unless_missing(lambda: client.get_model_version(name, str(number)))


def _unless_missing(ask: Callable[[], Any]) -> Any:
    """Return the answer; None if the registry answers that it has no such thing."""
    from mlflow.exceptions import MlflowException

    try:
        return ask()
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def published_of(version: Any) -> Published:
    """Return MLflow's version as ours. Its number is a text over HTTP, else a number."""
    number, tags = int(version.version), dict(version.tags)
    return Published(version.name, number, tags.get(DIGEST, ""), f"models:/{version.name}/{number}", tags)
