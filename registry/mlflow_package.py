"""Logs a package as a model of an MLflow run: files, signature, example, environment. Knows MLflow's model format."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

import numpy as np

from pliant.registry import codec
from pliant.registry.address import is_local, local_folder
from pliant.registry.folder import sync_tree
from pliant.registry.mlflow_run import Run, measured
from pliant.registry.package import BUNDLE, Example, Package, copy_code, frame, needed, pyfunc_file
from pliant.registry.store import NOTES


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
