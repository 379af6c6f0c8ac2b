"""What the registry asks of MLflow when it publishes, runs, locks and downloads, and what it says when MLflow fails."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from pliant.errors import UnreachableError
from pliant.registry import codec, mlflow_store
from pliant.registry.mlflow_run import Run
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.package import Package, Published
from tests.fixtures.mlflow_client import A, Client, two_models


@pytest.fixture
def client(monkeypatch):
    return two_models(monkeypatch)


@pytest.fixture
def registry():
    return MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))


def ill(*_given, **_more):
    raise MlflowException("ill")


@pytest.mark.parametrize(
    ("method", "act", "sentence"),
    [
        ("get_registered_model", lambda r: r.release("bins"), "the release of bins could not be looked up"),
        ("get_registered_model", lambda r: r.fetch("foreign"), "foreign could not be looked up"),
        ("search_registered_models", lambda r: r.names(), "the models could not be listed"),
        ("search_model_versions", lambda r: r.numbers(A), f"the versions of {A} could not be listed"),
        ("get_experiment_by_name", lambda r: r.identity(), "the registry's experiment could not be looked up"),
        ("get_model_version", lambda r: r.fetch(A, 9), f"there is no {A} version 9"),
        ("get_model_version", lambda r: r.commit({A: 9}), "bins could not be released"),
        ("create_registered_model", lambda r: r.commit({A: 2}), "bins could not be released"),
        ("set_registered_model_alias", lambda r: r.promote(A, 2), f"{A} version 2 could not be promoted"),
        (
            "get_model_version_download_uri",
            lambda r: r.intact(Published(A, 1, "", f"models:/{A}/1", {})),
            f"the files of models:/{A}/1 could not be looked up",
        ),
        (
            "get_model_version_download_uri",
            lambda r: r.fetch(A, 1),
            f"the files of models:/{A}/1 could not be fetched",
        ),
        ("create_run", lambda r: r.run("x").__enter__(), "a run could not be started"),
        ("create_model_version", lambda r: r.publish(Run(r.connect(), "", "r", "e"), packed()), f"{A} could not be"),
    ],
)
def test_whatever_the_registry_cannot_do_is_named(registry, client, monkeypatch, method, act, sentence):
    client.experiment = SimpleNamespace(experiment_id="4", creation_time=123)
    monkeypatch.setattr(mlflow_store, "log_model", logged_at("files"))
    monkeypatch.setattr(codec, "kind", lambda folder: "bins-plan")
    monkeypatch.setattr(codec, "digest", lambda folder: "d")
    monkeypatch.setattr(Client, method, ill, raising=False)
    with pytest.raises(UnreachableError, match=f"^{sentence}.* at sqlite:///registry.db: ill$"):
        act(registry)


def packed() -> Package:
    return Package(A, Path("bundle"), {}, {}, metrics={"accuracy": 0.91234567}, tags={"pliant.data": 7})


def logged_at(location: str):
    return lambda run, package, tags: SimpleNamespace(artifact_location=location, model_id="m-1")


@pytest.mark.parametrize("root", ["file:///files", "s3://bucket/files"])
def test_what_lies_elsewhere_is_downloaded_to_a_folder_of_its_own_until_it_is_discarded(
    registry, client, monkeypatch, root
):
    asked = []

    def download(uri, _run, _path, target, tracking_uri):
        asked.append((uri, target, tracking_uri))
        return target or "/files/artifacts/bundle"

    monkeypatch.setattr("mlflow.artifacts.download_artifacts", download)
    monkeypatch.setattr(Client, "get_model_version_download_uri", lambda _self, name, number: root, raising=False)
    folder, published = registry.fetch(A)
    ((uri, target, tracking_uri),) = asked
    assert (uri, tracking_uri, published.version) == (f"{root}/artifacts/bundle", registry.tracking_uri, 1)
    assert (target is None) == root.startswith("file")
    assert folder.is_dir() == (target is not None)
    registry.discard(folder)
    assert not folder.is_dir()


def test_a_database_that_nobody_listens_for_is_named_at_once_without_its_password():
    pytest.importorskip("psycopg")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        uri = f"postgresql://ann:secret@127.0.0.1:{taken.getsockname()[1]}/registry"
        begun = time.monotonic()
        with pytest.raises(UnreachableError) as raised:
            MlflowRegistry(uri, "pliant-bins", Path("x")).identity()
    assert "the registry could not be opened at postgresql://127.0.0.1:" in str(raised.value)
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)
    assert time.monotonic() - begun < 60, "MLflow itself goes on for 102 s"
