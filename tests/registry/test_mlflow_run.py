"""What a run logs, and how MLflow's failures are said: whether something is missing or nobody answers, and no secret."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException, RestException
from mlflow.utils.rest_utils import verify_rest_response
from requests import Response
from requests.exceptions import HTTPError

from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.registry.mlflow_client import PASSWORD, TOKEN, USER, registry_errors
from pliant.registry.mlflow_store import Run

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
        run(error)[0].text("report.md", "fine")
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
