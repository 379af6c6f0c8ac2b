"""The signature of a published model: what its clients are told of inputs, outputs and parameters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import mlflow.pyfunc
import numpy as np
import pytest

import pliant
import registry
from registry import codec, mlflow_package
from registry.mlflow_run import Run
from registry.package import Package

IMAGES = np.zeros((5, 16, 24, 3), np.uint8)
ROWS = {"text": np.array(["a", "bc"]), "length": np.array([1, 2]), "share": np.zeros(2, np.float32), "at": np.zeros(2)}


def test_tensors_have_their_type_and_shape_but_for_the_batch():
    (spec,) = mlflow_package._schema(IMAGES).inputs
    assert spec.type == np.dtype(np.uint8) and spec.shape == (-1, 16, 24, 3)


def test_columns_have_names_and_types_in_their_order():
    specs = mlflow_package._schema(ROWS).inputs
    assert [(spec.name, spec.type.name) for spec in specs] == [
        ("text", "string"),
        ("length", "long"),
        ("share", "float"),
        ("at", "double"),
    ]


def test_a_column_of_another_type_is_no_example():
    with pytest.raises(KeyError):
        mlflow_package._schema({"small": np.zeros(1, np.int8)})


def test_parameters_have_the_types_of_their_defaults():
    options = {"gamma": -5, "seed": 0, "share": 0.5, "task": "digit", "strict": True}
    signature = mlflow_package._signature(Package("m", Path(), IMAGES, ROWS, options))
    assert [(param.name, param.dtype.name, param.default) for param in signature.params] == [
        ("gamma", "long", -5),
        ("seed", "long", 0),
        ("share", "double", 0.5),
        ("task", "string", "digit"),
        ("strict", "boolean", True),
    ]
    assert signature.inputs.is_tensor_spec() and not signature.outputs.is_tensor_spec()
    assert mlflow_package._signature(Package("m", Path(), IMAGES, ROWS)).params is None


class Client:
    """Keeps what it was called with, and in which order, and what lay in the model's folder then."""

    def __init__(self, location: str) -> None:
        self.calls, self._location = [], location

    def create_logged_model(self, *given):
        self.calls.append(("create_logged_model", *given))
        return SimpleNamespace(model_id="m-1", artifact_location=self._location)

    def log_model_artifacts(self, model, folder):
        files = {path.relative_to(folder).as_posix(): path.read_text() for path in Path(folder).rglob("*.json")}
        self.calls.append(("log_model_artifacts", model, files))

    def log_outputs(self, run, outputs):
        self.calls.append(("log_outputs", run, [(output.model_id, output.step) for output in outputs]))

    def log_batch(self, run, metrics):
        self.calls.append(("log_batch", run, [(each.key, each.value, each.step, each.model_id) for each in metrics]))

    def __getattr__(self, name):
        return lambda *given: self.calls.append((name, *given))


@pytest.mark.parametrize("location", ["file:///far/m-1", "s3://bucket/m-1"])
def test_a_model_is_ready_once_its_files_are_there_and_those_of_this_machine_are_on_the_disk(
    tmp_path, monkeypatch, location
):
    (tmp_path / "artifact.json").write_text("values")
    client = Client(location)

    def save(folder, bundle, package, model):
        folder.mkdir()
        (folder / "of.json").write_text((bundle / "artifact.json").read_text())
        client.calls.append((bundle.name, model.artifact_path, model.run_id, model.model_id))

    monkeypatch.setattr(mlflow_package, "_save_model", save)
    monkeypatch.setattr(mlflow_package, "sync_tree", lambda folder: client.calls.append(("sync", folder)))
    package = Package("m", tmp_path, IMAGES, ROWS, params={"depth": 2}, metrics={"share": 0.5})
    logged = mlflow_package.log_model(Run(client, "sqlite:///x.db", "r-1", "e-1"), package, {"tag": "x"})
    assert logged.model_id == "m-1"
    assert client.calls == [
        ("create_logged_model", "e-1", "m", "r-1", {"tag": "x"}, {"depth": "2"}),
        ("bundle", location, "r-1", "m-1"),
        ("log_model_artifacts", "m-1", {"of.json": "values"}),
        *([("sync", Path("/far/m-1"))] if location.startswith("file") else []),
        ("finalize_logged_model", "m-1", "READY"),
        ("log_outputs", "r-1", [("m-1", 0)]),
        ("log_batch", "r-1", [("share", 0.5, 0, "m-1")]),
    ]


@pytest.mark.parametrize("options", [{}, {"gamma": 0}])
def test_a_model_is_saved_with_its_code_its_example_and_the_distributions_that_it_needs(monkeypatch, options):
    saved = {}
    monkeypatch.setattr(mlflow.pyfunc, "save_model", lambda folder, **given: saved.update(given, folder=folder))
    monkeypatch.setattr(mlflow_package, "installed", lambda name: f"{len(name)}.1+cpu")
    monkeypatch.setattr(codec, "kind", lambda folder: {Path("artifact"): "bins-plan"}[folder])
    package = Package("m", Path("artifact"), ROWS, ROWS, options, {"device": "cpu"}, requires=("scikit-learn",))
    mlflow_package._save_model(Path("model"), Path("files", "bundle"), package, "model of MLflow")
    example, requirements = saved.pop("input_example"), saved.pop("pip_requirements")
    frame = example[0] if options else example
    assert frame.to_dict("list") == {name: list(column) for name, column in ROWS.items()}
    assert not options or example[1] == {"gamma": 0}
    assert {"torch==5.1", "scikit-learn==12.1"} < set(requirements) and requirements[-1] == "scikit-learn==12.1"
    assert saved.pop("signature") == mlflow_package._signature(package)
    assert saved == {
        "folder": Path("model"),
        "python_model": str(Path(registry.__file__).parent / "pyfunc" / "bins_plan.py"),
        "artifacts": {"bundle": str(Path("files", "bundle"))},
        "code_paths": [str(Path(package_.__file__).parent) for package_ in (pliant, registry)],
        "mlflow_model": "model of MLflow",
        "model_config": {"device": "cpu"},
    }
