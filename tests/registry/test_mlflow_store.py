"""What is published can be found by alias; what is missing or out of reach is a sentence, soon."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from mlflow import MlflowClient

from pliant.errors import RegistryError
from pliant.registry.mlflow_client import PROBE_SECONDS
from pliant.registry.mlflow_store import MlflowRegistry
from tests.fixtures.light_mlflow import lay_database
from tests.registry.conftest import BACKBONE


def test_a_run_keeps_what_was_logged(registry, tmp_path):
    with registry.run("logged", {"why": "test"}) as run:
        run.params({"depth": 2, "name": "x"})
        run.metrics({"accuracy.m5": 0.5})
        run.document("report", {"a": 1})
        run.text("notes.txt", "none")
        run.figure("curve", _curve())
        run.dataset("digits", "f" * 64, "scikit-learn")
    client = MlflowClient(registry.tracking_uri, registry.tracking_uri)
    kept = client.get_run(run.id)
    assert kept.info.status == "FINISHED" and kept.data.tags["why"] == "test"
    assert kept.data.params == {"depth": "2", "name": "x"} and kept.data.metrics == {"accuracy.m5": 0.5}
    assert {item.path for item in client.list_artifacts(run.id)} == {"report.json", "notes.txt", "curve.png"}
    assert kept.inputs.dataset_inputs[0].dataset.name == "digits"


def test_a_deleted_experiment_is_refused_before_anything_is_published(registry, tmp_path):
    own = replace(registry, tracking_uri=lay_database(tmp_path / "own.db"))
    own.create()
    own.check()
    client = own.connect()
    client.delete_experiment(client.get_experiment_by_name(own.experiment).experiment_id)
    with pytest.raises(RegistryError, match="is deleted: mlflow experiments restore"):
        own.check()


def test_publishing_prints_and_warns_of_nothing(registry, shelf, capfd, recwarn):
    _publish(registry, shelf)
    _publish(registry, shelf, "profile")
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []


def test_a_server_that_never_answers_fails_when_the_probe_has_waited(monkeypatch):
    assert PROBE_SECONDS <= 5
    monkeypatch.setattr("pliant.registry.mlflow_client.PROBE_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _fails_soon(f"http://user:secret@127.0.0.1:{silent.getsockname()[1]}")


def test_an_address_that_is_none_is_a_sentence():
    for address in ("nonsense://x", "http://", "http://[", "sqlite://"):
        with pytest.raises(RegistryError):
            MlflowRegistry(address, "e", Path("unused")).names()


def _fails_soon(address):
    """Left to itself MLflow asks again for minutes."""
    start = time.monotonic()
    with pytest.raises(RegistryError, match=r"no MLflow server answers at http://127\.0\.0\.1") as caught:
        MlflowRegistry(address, "e", Path("unused")).fetch(BACKBONE)
    assert time.monotonic() - start < 30
    assert "secret" not in str(caught.value)


def _publish(registry, shelf, name="backbone"):
    with registry.run("again") as run:
        return registry.publish(run, shelf.package(name))


def _curve():
    matplotlib.use("Agg")
    figure = Figure()
    figure.subplots().plot([1, 2])
    return figure
