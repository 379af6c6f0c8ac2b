"""What the registry asks of MLflow when it publishes, runs, locks and downloads, and what it says when MLflow fails."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from pliant.errors import RegistryError, UnreachableError
from registry import codec, mlflow_store
from registry.mlflow_run import Run
from registry.mlflow_store import MlflowRegistry
from registry.package import Package, Published
from tests.fixtures.mlflow_client import Client

A, B, RELEASES = "pliant-bins-a", "pliant-bins-encoder-a", "pliant-release-bins"


@pytest.fixture
def client(monkeypatch):
    """Two models with three versions each, the first of which are champions."""
    client = Client()
    client.add(A, 3, champion="1")
    client.add(B, 3, champion="1")

    @contextmanager
    def locked(_registry, system):
        client.writes.append(("locked", system))
        yield lambda: client.writes.append(("checked",))

    monkeypatch.setattr(MlflowRegistry, "connect", lambda self, create=False: client)
    monkeypatch.setattr(MlflowRegistry, "locked", locked)
    return client


@pytest.fixture
def registry():
    return MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts"))


def test_a_system_is_described_by_the_model_of_its_releases_and_is_one_at_a_time(registry, client, monkeypatch):
    described, create = {}, client.create_registered_model

    def note(name, description=None):
        described[name] = description
        create(name, description)

    monkeypatch.setattr(client, "create_registered_model", note)
    registry.commit({A: 2})
    about = "Releases of bins: each names the versions that are served together. Its alias champion is what is served."
    assert described == {RELEASES: about}
    with pytest.raises(ValueError, match="unpack"):
        registry.commit({A: 3}, without=["pliant-tokens-task-a"])
    assert registry.release("bins").versions == {A: 2, B: 1}


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


def test_what_is_published_is_the_next_version_of_its_model_with_all_tags_as_texts(registry, client, monkeypatch):
    given, described, create = [], [], client.create_model_version

    def note(name, source, run_id=None, tags=None, description=None, model_id=None):
        given.append((name, source, run_id, model_id))
        described.append(description)
        return create(name, source, run_id, tags)

    def log(run, package, tags):
        given.append((run.id, package.name, dict(tags)))
        return SimpleNamespace(artifact_location="file:///files", model_id="m-1")

    metrics = {"pliant.metrics": '{"accuracy": 0.912346}'}
    tags = {"pliant.data": "7", "pliant.digest": "d1", "pliant.kind": "bins-plan"} | metrics
    monkeypatch.setattr(client, "create_model_version", note)
    monkeypatch.setattr(mlflow_store, "log_model", log)
    monkeypatch.setattr(codec, "kind", lambda folder: {Path("bundle"): "bins-plan"}[folder])
    monkeypatch.setattr(codec, "digest", lambda folder: {Path("bundle"): "d1"}[folder])
    published = registry.publish(Run(client, "", "r-1", "e-1"), packed())
    assert published == Published(A, 4, "d1", f"models:/{A}/4", tags)
    assert given == [("r-1", A, tags), (A, "file:///files", "r-1", "m-1")]
    assert registry.publish(Run(client, "", "r-2", "e-1"), replace(packed(), name="pliant-bins-new")).version == 1
    assert (
        described[0].startswith("Not served yet.\nMade while version 1 was served.\nData: `7`.")
        and "| accuracy | 0.9123 |" in described[0]
    )
    assert described[1].startswith("Not served yet.\nMade before any version was served.")


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError, "FAILED"), (KeyboardInterrupt, "FAILED")]
)
def test_a_run_is_started_with_its_tags_as_texts_and_ended_as_its_block_ends(
    registry, client, monkeypatch, error, status
):
    calls = []

    def create_run(_self, experiment, run_name, tags):
        calls.append((experiment, run_name, tags))
        return SimpleNamespace(info=SimpleNamespace(run_id="r-9"))

    client.experiment = SimpleNamespace(experiment_id=4)
    monkeypatch.setattr(Client, "create_run", create_run, raising=False)
    monkeypatch.setattr(Client, "set_terminated", lambda _self, *given: calls.append(given), raising=False)

    def work():
        with registry.run("train", {"seed": 3}) as run:
            assert (run.id, run.experiment_id, run.uri, run.client) == ("r-9", "4", registry.tracking_uri, client)
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert calls == [("4", "train", {"seed": "3"}), ("r-9", status)]


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


def test_a_registry_is_its_address_whatever_was_downloaded_from_it():
    here, there = (MlflowRegistry("sqlite:///registry.db", "pliant-bins", Path("artifacts")) for _ in range(2))
    assert here == there != replace(there, experiment="other")
    assert "Downloads" not in repr(here) and here.downloads is not there.downloads


def test_only_a_database_file_can_be_not_there_yet(tmp_path):
    registry = MlflowRegistry(f"sqlite:///{tmp_path / 'm.db'}", "e", tmp_path)
    assert not registry.exists()
    (tmp_path / "m.db").touch()
    assert registry.exists() and MlflowRegistry("http://host:5000", "e", tmp_path).exists()


@pytest.mark.parametrize(
    ("uri", "held"), [("sqlite:///m.db", ("file", Path("m.db"), "bins")), ("http://host", ("lease", "client", "bins"))]
)
def test_a_registry_in_a_file_is_locked_beside_it_and_any_other_in_itself(monkeypatch, uri, held):
    monkeypatch.setattr(mlflow_store, "file_lock", lambda *given: ("file", *given))
    monkeypatch.setattr(mlflow_store, "lease", lambda *given: ("lease", *given))
    monkeypatch.setattr(MlflowRegistry, "connect", lambda self: "client")
    assert MlflowRegistry(uri, "e", Path()).locked("bins") == held


@pytest.mark.parametrize("create", [False, True])
def test_a_client_is_made_for_the_address_alone_once_it_was_checked(monkeypatch, create):
    checked = []
    monkeypatch.setattr(mlflow_store, "set_defaults", lambda: checked.append("defaults"))
    monkeypatch.setattr(mlflow_store, "check_reachable", lambda *given: checked.append(given))
    registry = MlflowRegistry("http://127.0.0.1:9", "e", Path())
    made = registry.connect(create=True) if create else registry.connect()
    assert checked == ["defaults", ("http://127.0.0.1:9", create)]
    assert made.tracking_uri == made._registry_uri == "http://127.0.0.1:9"


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


def test_a_file_that_is_no_database_is_one_sentence(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"no database, but long enough to be looked at " * 30)
    with pytest.raises(RegistryError, match=r"could not be .* at sqlite:.*mlflow.db: .*file is not a database"):
        MlflowRegistry(f"sqlite:///{tmp_path}/mlflow.db", "pliant-bins", Path("x")).identity()
