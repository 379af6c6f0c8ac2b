"""Artifacts in MLflow: runs, registered models, aliases. With the pyfunc files, the only place that knows MLflow.

Uses MLflow's client with an explicit address, never its process-wide "current" run or tracking URI, so that threads and
registries do not meet. Whatever MLflow, its database or the network raise becomes a `RegistryError`.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import pliant.errors
from pliant.errors import RegistryError
from registry import codec
from registry.address import ADVICE, check_reachable, database, set_defaults, shown
from registry.package import Example, Package, Published, frame, pyfunc_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHAMPION, PREVIOUS = "champion", "previous"
DIGEST, KIND = "pliant.digest", "pliant.kind"
BUNDLE = "bundle"


@dataclass(frozen=True, slots=True)
class Run:
    """One MLflow run being written. Any thread may log to it."""

    client: Any
    uri: str
    id: str
    experiment_id: str

    def params(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        with _asking(self.uri, "parameters could not be logged"):
            self.client.log_batch(self.id, params=[Param(name, str(value)) for name, value in values.items()])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        with _asking(self.uri, "metrics could not be logged"):
            for name, value in values.items():
                self.client.log_metric(self.id, name, value, step=step)

    def figure(self, name: str, figure: Figure) -> None:
        """A matplotlib figure as `name`.png."""
        with _asking(self.uri, f"figure {name} could not be logged"):
            self.client.log_figure(self.id, figure, f"{name}.png")

    def document(self, name: str, values: Mapping[str, Any]) -> None:
        """Plain values as `name`.json."""
        with _asking(self.uri, f"{name} could not be logged"):
            self.client.log_dict(self.id, dict(values), f"{name}.json")

    def text(self, file: str, text: str) -> None:
        with _asking(self.uri, f"{file} could not be logged"):
            self.client.log_text(self.id, text, file)

    def dataset(self, name: str, fingerprint: str, source: str, context: str = "training") -> None:
        """Name a data set that went into the run. MLflow keeps 36 characters of a digest; the whole is in the profile."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        where, profile = json.dumps({"uri": source}), json.dumps({"fingerprint": fingerprint})
        dataset = Dataset(name, fingerprint[:36], "local", where, profile=profile)
        with _asking(self.uri, f"data set {name} could not be logged"):
            self.client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def end(self, status: str) -> None:
        with _asking(self.uri, "the run could not be ended"):
            self.client.set_terminated(self.id, status)


@dataclass(frozen=True, slots=True)
class MlflowRegistry:
    """A tracking server (http, https), or a database (sqlite, postgresql) with artifacts under `artifact_root`."""

    tracking_uri: str
    experiment: str
    artifact_root: Path

    @contextmanager
    def run(self, name: str, tags: Mapping[str, object] | None = None) -> Iterator[Run]:
        """A run that ends as FINISHED, or as FAILED if the block raises. Makes the database and experiment if missing."""
        client = self._connect(create=True)
        with _asking(self.tracking_uri, "a run could not be started"):
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
        with _asking(self.tracking_uri, f"{package.name} could not be published"):
            logged = _log_model(run, package, known)
            _ensure_model(run.client, package.name)
            # The location and not "models:/<id>": that one is looked up by the process-wide tracking URI.
            source = logged.artifact_location
            made = run.client.create_model_version(
                package.name, source, run_id=run.id, tags=known, model_id=logged.model_id
            )
        return _published(made)

    def exists(self) -> bool:
        """Whether anything was ever published here: False only for a database file that is not there yet."""
        path = database(self.tracking_uri)
        return path is None or path.is_file()

    def version(self, name: str, alias: str = CHAMPION) -> Published | None:
        """The version under `alias`; None if there is no such model or alias."""
        client = self._connect()
        with _asking(self.tracking_uri, f"{name} could not be looked up"):
            model = _find_model(client, name)
            if model is None or alias not in model.aliases:
                return None
            return _published(client.get_model_version(name, str(model.aliases[alias])))

    def fetch(self, name: str, which: str | int = CHAMPION) -> tuple[Path, Published]:
        """The artifact's folder on this machine, for reading only, and the version under an alias or number."""
        found = self._numbered(name, which) if isinstance(which, int) else self.version(name, which)
        if found is None:
            raise RegistryError(self._lacking(name, str(which)))
        if not found.digest:
            raise RegistryError(f"{found.uri} was not published by pliant: it has no tag {DIGEST}")
        return self._download(found), found

    def promote(self, name: str, version: int, alias: str = CHAMPION) -> None:
        """Move `alias` to `version`. The champion so far stays within reach as `previous`."""
        now = self.version(name, alias)
        if now is not None and now.version == version:
            return
        self._numbered(name, version)
        client = self._connect()
        with _asking(self.tracking_uri, f"{name} version {version} could not be promoted"):
            if now is not None and alias == CHAMPION:
                client.set_registered_model_alias(name, PREVIOUS, str(now.version))
            client.set_registered_model_alias(name, alias, str(version))

    def names(self, prefix: str = "") -> list[str]:
        """Registered models whose names begin with `prefix`, sorted."""
        client, token, found = self._connect(), None, []
        with _asking(self.tracking_uri, "the models could not be listed"):
            while token != "":
                page = client.search_registered_models(max_results=1000, page_token=token)
                found += [model.name for model in page]
                token = page.token or ""
        return sorted(name for name in found if name.startswith(prefix))

    def _connect(self, create: bool = False) -> Any:
        set_defaults()
        check_reachable(self.tracking_uri, create)
        with _asking(self.tracking_uri, "the registry could not be opened"):
            from mlflow import MlflowClient

            return MlflowClient(self.tracking_uri, self.tracking_uri)

    def _experiment(self, client: Any) -> str:
        found = client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        served = self.tracking_uri.startswith("http")  # a server keeps artifacts where it was told to
        location = None if served else Path(self.artifact_root).absolute().as_uri()
        return str(client.create_experiment(self.experiment, artifact_location=location))

    def _numbered(self, name: str, version: int) -> Published:
        client = self._connect()
        with _asking(self.tracking_uri, f"there is no {name} version {version}"):
            return _published(client.get_model_version(name, str(version)))

    def _lacking(self, name: str, alias: str) -> str:
        with _asking(self.tracking_uri, f"{name} could not be looked up"):
            model = _find_model(self._connect(), name)
        if model is None:
            return f"the registry at {shown(self.tracking_uri)} has no model {name}: {ADVICE}"
        known = ", ".join(f"{key} (version {value})" for key, value in sorted(model.aliases.items())) or "none"
        return f"model {name} has no version under the alias {alias}; its aliases: {known}"

    def _download(self, found: Published) -> Path:
        from mlflow.artifacts import download_artifacts

        client = self._connect()
        with _asking(self.tracking_uri, f"the files of {found.uri} could not be fetched"):
            root = client.get_model_version_download_uri(found.name, str(found.version))
            return Path(download_artifacts(f"{root}/artifacts/{BUNDLE}", tracking_uri=self.tracking_uri))


def _log_model(run: Run, package: Package, tags: Mapping[str, str]) -> Any:
    """MLflow's `log_model` does the same, but for the process-wide tracking URI, and prints as it goes."""
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    params = {key: str(value) for key, value in package.params.items()}
    logged = run.client.create_logged_model(run.experiment_id, package.name, run.id, dict(tags), params)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        # MLflow keeps a folder's own name, and follows no link.
        bundle = shutil.copytree(package.folder, Path(temporary, BUNDLE))
        _save_model(folder, bundle, package, Model(logged.artifact_location, run.id, model_id=logged.model_id))
        run.client.log_model_artifacts(logged.model_id, str(folder))
    run.client.finalize_logged_model(logged.model_id, "READY")
    run.client.log_outputs(run.id, [LoggedModelOutput(logged.model_id, step=0)])
    for name, value in package.metrics.items():
        run.client.log_metric(run.id, name, value, model_id=logged.model_id)
    return logged


def _save_model(folder: Path, bundle: Path, package: Package, model: Any) -> None:
    import mlflow

    code, inputs = pyfunc_file(codec.kind(package.folder)), frame(package.inputs)
    mlflow.pyfunc.save_model(
        folder,
        python_model=str(code),
        artifacts={BUNDLE: str(bundle)},
        code_paths=[str(Path(pliant.errors.__file__).parent), str(code.parent)],
        mlflow_model=model,
        signature=_signature(package),
        input_example=(inputs, dict(package.options)) if package.options else inputs,
        model_config=dict(package.config),
        pip_requirements=[f"{name}=={installed(name).partition('+')[0]}" for name in package.requires],
    )


def _signature(package: Package) -> Any:
    from mlflow.models import ModelSignature
    from mlflow.types import ParamSchema, ParamSpec

    kinds = {bool: "boolean", int: "long", float: "double", str: "string"}
    params = [ParamSpec(name, kinds[type(value)], value) for name, value in package.options.items()]
    return ModelSignature(_schema(package.inputs), _schema(package.outputs), ParamSchema(params) if params else None)


def _schema(example: Example) -> Any:
    from mlflow.types import ColSpec, Schema, TensorSpec

    if isinstance(example, np.ndarray):
        return Schema([TensorSpec(example.dtype, (-1, *example.shape[1:]))])
    kinds = {"int64": "long", "float32": "float", "float64": "double"}
    return Schema([ColSpec(kinds[column.dtype.name], name) for name, column in example.items()])


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
    """MLflow gives a version number as text over HTTP, as a number otherwise."""
    number, tags = int(version.version), dict(version.tags)
    return Published(version.name, number, tags.get(DIGEST, ""), f"models:/{version.name}/{number}", tags)


@contextmanager
def _asking(uri: str, failed: str) -> Iterator[None]:
    from alembic.util import CommandError
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, CommandError, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise RegistryError(f"{failed} at {shown(uri)}: {first}") from error
