"""Artifacts in MLflow: runs, registered models, aliases. Beside it only mlflow_*.py and the pyfunc files know MLflow.

Uses MLflow's client with an explicit address, never its process-wide "current" run or tracking URI, so that threads and
registries do not meet. Whatever MLflow, its database or the network raise becomes a `RegistryError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pliant.errors import RegistryError
from registry import codec
from registry.address import ADVICE, check_reachable, database, is_local, set_defaults, shown
from registry.downloads import Downloads
from registry.mlflow_package import log_model
from registry.mlflow_run import Run, registry_errors
from registry.package import BUNDLE, Package, Published

CHAMPION, PREVIOUS = "champion", "previous"
DIGEST, KIND = "pliant.digest", "pliant.kind"


@dataclass(frozen=True, slots=True)
class MlflowRegistry:
    """A tracking server (http, https), or a database (sqlite, postgresql) with artifacts under `artifact_root`.

    Downloads are removed with this object, or before it by `discard`.
    """

    tracking_uri: str
    experiment: str
    artifact_root: Path
    downloads: Downloads = field(default_factory=Downloads, compare=False, repr=False)

    @contextmanager
    def run(self, name: str, tags: Mapping[str, object] | None = None) -> Iterator[Run]:
        """Open a run that ends as FINISHED, or as FAILED if the block raises. Creates database and experiment if missing."""
        client = self.connect(create=True)
        with registry_errors(self.tracking_uri, "a run could not be started"):
            experiment = self._experiment(client)
            known = {key: str(value) for key, value in (tags or {}).items()}
            started = client.create_run(experiment, run_name=name, tags=known)
        run = Run(client, self.tracking_uri, started.info.run_id, experiment)
        try:
            yield run
        except BaseException:
            run.end("FAILED")
            raise
        run.end("FINISHED")

    def publish(self, run: Run, package: Package) -> Published:
        """Register the package's folder as the next version of its model: one that any MLflow client can load.

        Raises `ArtifactError` for a folder that is not intact, `RegistryError` where MLflow refuses.
        """
        tags = {**package.tags, DIGEST: codec.digest(package.folder), KIND: codec.kind(package.folder)}
        known = {key: str(value) for key, value in tags.items()}
        with registry_errors(self.tracking_uri, f"{package.name} could not be published"):
            logged = log_model(run, package, known)
            _ensure_model(run.client, package.name)
            # The location and not "models:/<id>": that one is looked up by the process-wide tracking URI.
            source = logged.artifact_location
            version = run.client.create_model_version(
                package.name, source, run_id=run.id, tags=known, model_id=logged.model_id
            )
        return _published(version)

    def create(self) -> None:
        """Create the registry's database and experiment where they are missing; a first `run` does so too."""
        self._experiment(self.connect(create=True))

    def exists(self) -> bool:
        """Whether anything was ever published here: False only for a database file that is not there yet."""
        path = database(self.tracking_uri)
        return path is None or path.is_file()

    def version(self, name: str, alias: str = CHAMPION) -> Published | None:
        """Return the version under `alias`; None if there is no such model or alias."""
        client = self.connect()
        with registry_errors(self.tracking_uri, f"{name} could not be looked up"):
            model = _find_model(client, name)
            if model is None or alias not in model.aliases:
                return None
            return _published(client.get_model_version(name, str(model.aliases[alias])))

    def versions(self, prefix: str, alias: str = CHAMPION) -> dict[str, int]:
        """Return name -> version under `alias`, of all models whose names begin with `prefix` and that have the alias.

        One request for all models: cheap enough for polling.
        """
        models = [model for model in self.models() if model.name.startswith(prefix) and alias in model.aliases]
        return {model.name: int(model.aliases[alias]) for model in sorted(models, key=lambda model: str(model.name))}

    def fetch(self, name: str, which: str | int = CHAMPION) -> tuple[Path, Published]:
        """Return the artifact's folder on this machine, for reading only, and the version under an alias or number."""
        published = self._numbered(name, which) if isinstance(which, int) else self.version(name, which)
        if published is None:
            raise RegistryError(self._lacking(name, str(which)))
        if not published.digest:
            raise RegistryError(f"{published.uri} was not published by pliant: it has no tag {DIGEST}")
        return self._download(published), published

    def promote(self, name: str, version: int, alias: str = CHAMPION) -> None:
        """Move `alias` to `version`. The champion so far stays within reach as `previous`."""
        now = self.version(name, alias)
        if now is not None and now.version == version:
            return
        self._numbered(name, version)
        client = self.connect()
        with registry_errors(self.tracking_uri, f"{name} version {version} could not be promoted"):
            if now is not None and alias == CHAMPION:
                client.set_registered_model_alias(name, PREVIOUS, str(now.version))
            client.set_registered_model_alias(name, alias, str(version))

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of the registered models that begin with `prefix`, sorted."""
        return sorted(model.name for model in self.models() if model.name.startswith(prefix))

    def numbers(self, name: str) -> list[int]:
        """Return the numbers of a model's versions, ascending."""
        client, token, numbers = self.connect(), None, []
        with registry_errors(self.tracking_uri, f"the versions of {name} could not be listed"):
            while token != "":
                page = client.search_model_versions(f"name='{name}'", page_token=token)
                numbers += [int(version.version) for version in page]
                token = page.token or ""
        return sorted(numbers)

    def discard(self, folder: Path) -> None:
        """Remove a fetched folder that is not needed any more, if it was downloaded."""
        self.downloads.remove(folder)

    def models(self) -> list[Any]:
        """Return all registered models, as MLflow's entities."""
        client, token, models = self.connect(), None, []
        with registry_errors(self.tracking_uri, "the models could not be listed"):
            while token != "":
                page = client.search_registered_models(max_results=1000, page_token=token)
                models += list(page)
                token = page.token or ""
        return models

    def connect(self, create: bool = False) -> Any:
        """Return MLflow's client of this registry, for the files mlflow_*.py. Raises `RegistryError` without one."""
        set_defaults()
        check_reachable(self.tracking_uri, create)
        with registry_errors(self.tracking_uri, "the registry could not be opened"):
            from mlflow import MlflowClient

            return MlflowClient(self.tracking_uri, self.tracking_uri)

    def _experiment(self, client: Any) -> str:
        experiment = client.get_experiment_by_name(self.experiment)
        if experiment is not None:
            return str(experiment.experiment_id)
        served = self.tracking_uri.startswith("http")  # a server has its own place for artifacts
        location = None if served else Path(self.artifact_root).absolute().as_uri()
        return str(client.create_experiment(self.experiment, artifact_location=location))

    def _numbered(self, name: str, version: int) -> Published:
        client = self.connect()
        with registry_errors(self.tracking_uri, f"there is no {name} version {version}"):
            return _published(client.get_model_version(name, str(version)))

    def _lacking(self, name: str, alias: str) -> str:
        with registry_errors(self.tracking_uri, f"{name} could not be looked up"):
            model = _find_model(self.connect(), name)
        if model is None:
            return f"the registry at {shown(self.tracking_uri)} has no model {name}: {ADVICE}"
        known = ", ".join(f"{key} (version {value})" for key, value in sorted(model.aliases.items())) or "none"
        return f"model {name} has no version under the alias {alias}; its aliases: {known}"

    def _download(self, published: Published) -> Path:
        from mlflow.artifacts import download_artifacts

        client = self.connect()
        with registry_errors(self.tracking_uri, f"the files of {published.uri} could not be fetched"):
            root = client.get_model_version_download_uri(published.name, str(published.version))
            target = None if is_local(root) else str(self.downloads.fresh())  # what is here already is not copied
            return Path(download_artifacts(f"{root}/artifacts/{BUNDLE}", None, None, target, self.tracking_uri))


def _ensure_model(client: Any, name: str) -> None:
    from mlflow.exceptions import MlflowException

    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _find_model(client: Any, name: str) -> Any:
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return None


def _published(version: Any) -> Published:
    """Return MLflow's version as ours. Its number is a text over HTTP, else a number."""
    number, tags = int(version.version), dict(version.tags)
    return Published(version.name, number, tags.get(DIGEST, ""), f"models:/{version.name}/{number}", tags)
