"""What is published can be found by alias; what is missing or out of reach is a sentence, soon."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace

import matplotlib
import pytest
from matplotlib.figure import Figure
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException, RestException
from mlflow.utils.rest_utils import verify_rest_response
from requests import Response
from requests.exceptions import HTTPError

from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.flows.chart import page
from pliant.registry.mlflow_client import PASSWORD, PROBE_SECONDS, TOKEN, USER, registry_errors
from pliant.registry.mlflow_store import PAGES, MlflowRegistry, Run
from tests.fixtures.light_mlflow import lay_database
from tests.registry.conftest import BACKBONE


def test_a_run_keeps_what_was_logged(registry, tmp_path):
    with registry.run("logged", {"why": "test"}) as run:
        run.params({"depth": 2, "name": "x"})
        run.metrics({"accuracy.m5": 0.5})
        run.document("report", {"a": 1})
        run.figure("curve", _curve())
        run.dataset("digits", "f" * 64, "scikit-learn")
        for _ in range(2):  # a publication that is tried once more
            run.table("latencies", [{"batch": 1, "ms": 2.5}, {"batch": 4, "who": "x"}])
        run.page("chart", page("Seconds < minutes", [{"batch": 1, "ms": 2.5}, {"batch": 4}], "batch", ["ms"]))
        run.describe("It went well.", "renamed")
    place = f"/#/experiments/{run.experiment_id}/runs/{run.id}?workflowType=machine_learning"
    assert (run.url(), run.url("https://people/")) == (PAGES + place, "https://people" + place)
    client = MlflowClient(registry.tracking_uri, registry.tracking_uri)
    kept = client.get_run(run.id)
    assert kept.info.status == "FINISHED" and kept.data.tags["why"] == "test"
    assert kept.data.params == {"depth": "2", "name": "x"} and kept.data.metrics == {"accuracy.m5": 0.5}
    assert {item.path for item in client.list_artifacts(run.id)} == {
        *("report.json", "curve.png", "latencies.json", "chart.html")
    }
    table = json.loads(Path(client.download_artifacts(run.id, "latencies.json")).read_text())
    assert table == {"columns": ["batch", "ms", "who"], "data": [[1, 2.5, None], [4, None, "x"]]}
    assert json.loads(kept.data.tags["mlflow.loggedArtifacts"]) == [{"path": "latencies.json", "type": "table"}]
    shown = Path(client.download_artifacts(run.id, "chart.html")).read_text()
    assert '"rows": [{"batch": 1, "ms": 2.5}]' in shown and "<h1>Seconds &lt; minutes</h1>" in shown
    assert (kept.info.run_name, kept.data.tags["mlflow.note.content"]) == ("renamed", "It went well.")
    assert client.get_experiment(run.experiment_id).tags["mlflow.experimentKind"] == "custom_model_development"
    assert kept.inputs.dataset_inputs[0].dataset.name == "digits"


def test_a_deleted_experiment_is_refused_before_anything_is_published(registry, tmp_path):
    own = replace(registry, tracking_uri=lay_database(tmp_path / "own.db"))
    own.create()
    own.check()
    client = own.connect()
    client.delete_experiment(client.get_experiment_by_name(own.experiment).experiment_id)
    with pytest.raises(RegistryError, match="is deleted: mlflow experiments restore"):
        own.check()


@pytest.mark.parametrize("moved", [True, False])
def test_a_registry_that_was_moved_or_copied_does_not_write_where_it_lay_before(registry, tmp_path, moved):
    first, second = tmp_path / "first", tmp_path / "second"
    own = replace(registry, tracking_uri=lay_database(first / "own.db"), artifact_root=first / "artifacts")
    own.create()
    own.check()
    second.mkdir()
    (first.rename if moved else partial(copytree, first, dirs_exist_ok=True))(second)
    there = replace(own, tracking_uri=f"sqlite:///{second / 'own.db'}", artifact_root=second / "artifacts")
    for act in (there.check, there.create):
        with pytest.raises(RefusedError, match=f"was copied or moved, and its runs would still be written to {first}"):
            act()


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


URI = "postgresql://ann:geheim@db/registry"


class Client:
    """Keeps what it was called with; `error` is raised instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls, self._error = [], error

    def __getattr__(self, name):
        def call(*given, **more):
            if self._error:
                raise self._error
            self.calls.append((name, given, more))

        return call


def run(error: Exception | None = None) -> tuple[Run, Client]:
    client = Client(error)
    return Run(client, URI, "r1", "e1"), client


def answered(status: int) -> Exception:
    error = RestException({"error_code": "INTERNAL_ERROR", "message": "no"})
    error.response = SimpleNamespace(status_code=status)
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MlflowException("gone", error_code=5002), UnreachableError),
        (RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "gone"}), RegistryError),
        (RestException({"error_code": "NOT_FOUND", "message": "gone"}), RegistryError),
        (RestException({"error_code": "INTERNAL_ERROR", "message": "ill"}), UnreachableError),
        (answered(404), RegistryError),
        (answered(500), UnreachableError),
        (FileNotFoundError("no file"), RegistryError),
        (MlflowException("No such file or directory: 'x'"), RegistryError),
        (ConnectionError("refused"), UnreachableError),
        (OSError(), UnreachableError),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_registry_that_answers_that_something_is_missing_is_told_from_one_that_fails(error, kind):
    with pytest.raises(RegistryError) as caught:
        run(error)[0].document("report", {"fine": True})
    assert type(caught.value) is kind
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


PAGE = "<html>\r\n<head><title>No</title></head></html>"
ASKS = f"it asks for a name and a password: set {USER} and {PASSWORD} (401)"


@pytest.fixture(autouse=True)
def nobody_is_known(monkeypatch, tmp_path):
    for name in (USER, PASSWORD, TOKEN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("mlflow.utils.credentials._get_credentials_path", lambda: str(tmp_path / "credentials"))


def answered_with(status: int, body: str = PAGE) -> Exception:
    """What MLflow's client raises after such an answer."""
    response = Response()
    response.status_code, response._content = status, body.encode()
    with pytest.raises(MlflowException) as raised:
        verify_rest_response(response, "/api/2.0/mlflow/runs/get")
    return raised.value


def said(error: Exception, uri: str = "http://host") -> UnreachableError:
    with pytest.raises(UnreachableError) as raised, registry_errors(uri, "it failed"):
        raise error
    return raised.value


@pytest.mark.parametrize(
    ("uri", "variables", "why"),
    [
        ("http://host", {}, ASKS),
        ("http://host", {USER: "anna"}, ASKS),
        (
            "http://host",
            {USER: "anna", PASSWORD: "secret"},
            f"it does not accept the name and the password of {USER} and {PASSWORD} (401)",
        ),
        ("http://host", {TOKEN: "secret"}, f"it does not accept {TOKEN} (401)"),
        ("http://anna:secret@host", {}, "it does not accept the name and the password in its address (401)"),
        (
            "http://anna:secret@host",
            {USER: "a", PASSWORD: "b"},
            "it does not accept the name and the password in its address (401)",
        ),
    ],
)
def test_who_is_not_let_in_hears_by_which_name_and_what_to_set(monkeypatch, uri, variables, why):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for body in (PAGE, "You are not authenticated.", '{"error_code": "UNAUTHENTICATED", "message": "no"}'):
        error = said(answered_with(401, body), uri)
        assert type(error) is RefusedError
        assert str(error) == f"it failed at http://host: {why}"


def test_what_a_user_may_not_do_and_files_that_are_not_given_out_are_refusals_too():
    assert str(said(answered_with(403, "Permission denied"))).endswith(": it lets this user in, but not do that (403)")
    download = HTTPError(
        "401 Client Error: Unauthorized for url: http://host/file", response=SimpleNamespace(status_code=401)
    )
    assert type(said(download)) is RefusedError and str(said(download)).endswith(ASKS)
