"""One run of an MLflow experiment while it is written, and the packages that are logged as its models."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pliant.registry import codec
from pliant.registry.address import is_local, local_folder
from pliant.registry.folder import sync_tree
from pliant.registry.mlflow_client import registry_errors
from pliant.registry.package import BUNDLE, Example, Package, copy_code, frame, needed, pyfunc_file
from pliant.registry.store import NOTES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Run:
    """One MLflow run being written. Any thread may log to it."""

    client: Any
    uri: str
    id: str
    experiment_id: str

    def params(self, values: Mapping[str, object]) -> None:
        from mlflow.entities import Param

        with registry_errors(self.uri, "parameters could not be logged"):
            self.client.log_batch(self.id, params=[Param(name, str(value)) for name, value in values.items()])

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        with registry_errors(self.uri, "metrics could not be logged"):
            self.client.log_batch(self.id, metrics=measured(values, step))

    def figure(self, name: str, figure: Figure) -> None:
        """Log a matplotlib figure as `name`.png."""
        with registry_errors(self.uri, f"figure {name} could not be logged"):
            self.client.log_figure(self.id, figure, f"{name}.png")

    def document(self, name: str, values: Mapping[str, Any]) -> None:
        """Log plain values as `name`.json."""
        with registry_errors(self.uri, f"{name} could not be logged"):
            self.client.log_dict(self.id, dict(values), f"{name}.json")

    def text(self, file: str, text: str) -> None:
        with registry_errors(self.uri, f"{file} could not be logged"):
            self.client.log_text(self.id, text, file)

    def dataset(self, name: str, fingerprint: str, source: str, context: str = "training") -> None:
        """Log the name of a data set of the run. MLflow keeps 36 characters of a digest; the whole is in the profile."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        where, profile = json.dumps({"uri": source}), json.dumps({"fingerprint": fingerprint})
        dataset = Dataset(name, fingerprint[:36], "local", where, profile=profile)
        with registry_errors(self.uri, f"data set {name} could not be logged"):
            self.client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def end(self, status: str) -> None:
        with registry_errors(self.uri, "the run could not be ended"):
            self.client.set_terminated(self.id, status)


def measured(values: Mapping[str, float], step: int, model: str | None = None) -> list[Any]:
    """Return metrics of this moment, to be logged together: one by one each is a transaction of its own."""
    from mlflow.entities import Metric

    now = round(1000 * time.time())
    return [Metric(name, value, now, step, model_id=model) for name, value in values.items()]


def log_model(run: Run, package: Package, tags: Mapping[str, str]) -> Any:
    """Log the package as a model of the run. MLflow's own `log_model` prints, and uses the process-wide tracking URI."""
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model

    params = {key: str(value) for key, value in package.params.items()}
    logged = run.client.create_logged_model(run.experiment_id, package.name, run.id, dict(tags), params)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        # MLflow keeps a folder's own name, and follows no link.
        bundle = shutil.copytree(package.folder, Path(temporary, BUNDLE), ignore=shutil.ignore_patterns(NOTES))
        _save_model(folder, bundle, package, Model(logged.artifact_location, run.id, model_id=logged.model_id))
        run.client.log_model_artifacts(logged.model_id, str(folder))
    if is_local(logged.artifact_location):  # elsewhere the store's answer says that it has the files
        sync_tree(local_folder(logged.artifact_location))
    run.client.finalize_logged_model(logged.model_id, "READY")
    run.client.log_outputs(run.id, [LoggedModelOutput(logged.model_id, step=0)])
    run.client.log_batch(run.id, metrics=measured(package.metrics, 0, logged.model_id))
    return logged


def _save_model(folder: Path, bundle: Path, package: Package, model: Any) -> None:
    import mlflow

    kind = codec.kind(package.folder)
    code, inputs = pyfunc_file(kind), frame(package.inputs)
    mlflow.pyfunc.save_model(
        folder,
        python_model=str(code),
        artifacts={BUNDLE: str(bundle)},
        code_paths=[str(copy_code(bundle.parent, "registry"))],
        mlflow_model=model,
        signature=_signature(package),
        input_example=(inputs, dict(package.options)) if package.options else inputs,
        model_config=dict(package.config),
        pip_requirements=[
            f"{name}=={installed(name).partition('+')[0]}" for name in (*needed(kind), *package.requires)
        ],
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
    texts = {name: "string" for name, column in example.items() if column.dtype.kind == "U"}
    return Schema([ColSpec(texts.get(name) or kinds[column.dtype.name], name) for name, column in example.items()])
