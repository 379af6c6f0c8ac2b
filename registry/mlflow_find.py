"""Looks up models, versions, experiments and files with MLflow's client: what is not there is None and no error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pliant.registry.address import ADVICE, is_local, shown
from pliant.registry.package import BUNDLE, Published

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


def ensure_experiment(client: Any, name: str, location: str | None) -> str:
    """Return an experiment's identifier; where it is missing it is created, with its artifacts at `location`."""
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return str(experiment.experiment_id)
    return str(client.create_experiment(name, artifact_location=location))


def lacking(client: Any, name: str, alias: str, uri: str) -> str:
    """Return the sentence that says what is missing where a model has no version under an alias."""
    model = find_model(client, name)
    if model is None:
        return f"the registry at {shown(uri)} has no model {name}: {ADVICE}"
    known = ", ".join(f"{key} (version {value})" for key, value in sorted(model.aliases.items())) or "none"
    return f"model {name} has no version under the alias {alias}; its aliases: {known}"


def find_model(client: Any, name: str) -> Any:
    """Return a registered model as MLflow's entity, or None."""
    return _unless_missing(lambda: client.get_registered_model(name))


def find_version(client: Any, name: str, number: int) -> Any:
    """Return a version as MLflow's entity, or None."""
    return _unless_missing(lambda: client.get_model_version(name, str(number)))


def find_models(client: Any) -> list[Any]:
    """Return all registered models as MLflow's entities."""
    return _all_pages(lambda token: client.search_registered_models(max_results=1000, page_token=token))


def find_numbers(client: Any, name: str) -> list[int]:
    """Return the numbers of a model's versions, ascending."""
    versions = _all_pages(lambda token: client.search_model_versions(f"name='{name}'", page_token=token))
    return sorted(int(version.version) for version in versions)


def fetch_bundle(client: Any, published: Published, address: str, fresh: Callable[[], Path]) -> Path:
    """Return the artifact's folder of a version on this machine; `fresh` makes one for what has to be downloaded."""
    from mlflow.artifacts import download_artifacts

    root = client.get_model_version_download_uri(published.name, str(published.version))
    target = None if is_local(root) else str(fresh())  # what is here already is not copied
    return Path(download_artifacts(f"{root}/artifacts/{BUNDLE}", None, None, target, address))


def _all_pages(ask: Callable[[str | None], Any]) -> list[Any]:
    token, entries = None, []
    while token != "":
        page = ask(token)
        entries += list(page)
        token = page.token or ""
    return entries


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
