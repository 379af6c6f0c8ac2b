"""An address says which registry it is, is shown without secrets, and is checked before MLflow tries it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException, RestException
from mlflow.utils.rest_utils import verify_rest_response
from requests import Response
from requests.exceptions import HTTPError

from pliant.errors import RefusedError, RegistryError, UnreachableError
from pliant.registry import mlflow_client
from pliant.registry.mlflow_client import (
    CLIENT,
    PASSWORD,
    TOKEN,
    TRUSTED,
    UNCHECKED,
    USER,
    check_reachable,
    current_address,
    database,
    driver_address,
    registry_errors,
    shown,
)
from pliant.registry.mlflow_store import Run
from tests.fixtures.certificate import certificate


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("sqlite:///relative/m.db", Path("relative/m.db")),
        ("sqlite:////absolute/m.db", Path("/absolute/m.db")),
        ("http://host:5000", None),
        ("postgresql://host/db", None),
    ],
)
def test_a_sqlite_address_names_its_file(uri, path):
    assert database(uri) == path


@pytest.mark.parametrize("uri", ["sqlite:////c#/m.db", "sqlite:///m.db?mode=ro"])
def test_a_sqlite_address_that_ends_before_its_path_does_is_refused(uri):
    with pytest.raises(RegistryError, match=r"has a # or [?] in its path"):
        database(uri)


def test_a_database_file_in_anothers_place_has_another_address_of_the_same_path(tmp_path):
    uri = f"sqlite:///{tmp_path / 'm.db'}"
    assert current_address(uri) == uri
    addresses = []
    for number in range(2):
        (tmp_path / f"new{number}").touch()
        (tmp_path / f"new{number}").replace(tmp_path / "m.db")
        addresses.append(current_address(uri))
        assert database(addresses[-1]).resolve() == tmp_path / "m.db"
    assert len({uri, *addresses}) == 3
    assert current_address(uri) == addresses[-1]


@pytest.mark.parametrize(
    ("installed", "uri", "address_"),
    [
        ((), "http://host", "http://host"),
        ((), "sqlite:///m.db", "sqlite:///m.db"),
        ((), "postgres", "postgres"),
        (("psycopg",), "postgresql://me@host/db", "postgresql+psycopg://me@host/db"),
        (("psycopg2",), "postgres://host/db", "postgresql+psycopg2://host/db"),
        (("psycopg", "psycopg2"), "postgres://host/db", "postgresql+psycopg://host/db"),
        (("psycopg", "psycopg2"), "postgresql+psycopg2://host/db", "postgresql+psycopg2://host/db"),
    ],
)
def test_a_postgres_address_gets_the_driver_that_is_installed(installed, uri, address_, monkeypatch):
    monkeypatch.setattr(mlflow_client, "find_spec", lambda name: name if name in installed else None)
    assert driver_address(uri) == address_


@pytest.mark.parametrize(
    ("uri", "driver"), [("postgres://me:hidden@h/db", "psycopg"), ("postgresql+pg8000://me:hidden@h/db", "pg8000")]
)
def test_without_its_driver_a_postgres_address_is_an_error_that_says_what_to_install(uri, driver, monkeypatch):
    monkeypatch.setattr(mlflow_client, "find_spec", lambda name: None)
    with pytest.raises(RegistryError, match=f"its driver {driver} is missing here") as raised:
        driver_address(uri)
    assert "hidden" not in str(raised.value) and "[postgres]" in str(raised.value)


@pytest.mark.parametrize(
    ("uri", "seen"),
    [
        ("http://me:hidden@host:5000/x", "http://host:5000/x"),
        ("http://host/?token=hidden", "http://host/?token=***"),
        ("sqlite:///m.db", "sqlite:///m.db"),
    ],
)
def test_an_address_is_shown_without_its_secrets(uri, seen):
    assert shown(uri) == seen


def test_a_database_is_there_or_its_folder_is_made_if_it_may_be(tmp_path):
    uri = f"sqlite:///{tmp_path / 'folder' / 'm.db'}"
    with pytest.raises(UnreachableError, match=r"there is no registry database at .*m.db: run `pliant train`"):
        check_reachable(uri, create=False)
    check_reachable(uri, create=True)
    assert (tmp_path / "folder").is_dir()
    (tmp_path / "folder" / "m.db").touch()
    check_reachable(uri, create=False)
    (tmp_path / "file").touch()
    with pytest.raises(RegistryError, match=r"the registry's folder .* cannot be made"):
        check_reachable(f"sqlite:///{tmp_path / 'file' / 'x' / 'm.db'}", create=True)


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format, *arguments) -> None:
        """Say nothing."""


@contextmanager
def server(folder: Path, days: float = 1.0) -> Iterator[tuple[str, Path]]:
    """A server with a certificate for 127.0.0.1 that is valid for so many days: its port, and the certificate."""
    own = certificate(folder, days)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.path, own.key)
    listening = HTTPServer(("127.0.0.1", 0), Health)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield str(listening.server_port), own.path
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def own_variables(monkeypatch):
    for name in (TRUSTED, UNCHECKED, CLIENT, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def unreachable(address: str) -> str:
    with pytest.raises(UnreachableError) as raised:
        check_reachable(address, create=False)
    return str(raised.value)


@pytest.mark.parametrize("name", [TRUSTED, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_certificate_is_trusted_if_mlflows_client_trusts_it(tmp_path, monkeypatch, name):
    with server(tmp_path) as (port, path):
        address = f"https://me:hidden@127.0.0.1:{port}"
        refused = unreachable(address)
        monkeypatch.setenv(name, str(path))
        check_reachable(address, create=False)
    assert refused == (
        f"the certificate of the MLflow server at https://127.0.0.1:{port} is not valid (self-signed certificate): "
        f"{TRUSTED} names the file of those to trust"
    )


@pytest.mark.parametrize(
    ("name", "what"), [(TRUSTED, "file of certificates in PEM"), (CLIENT, "certificate with its key")]
)
def test_a_variable_that_names_no_certificate_is_named(tmp_path, monkeypatch, name, what):
    monkeypatch.setenv(name, str(tmp_path / "missing.pem"))
    with pytest.raises(RegistryError, match=f"^{name} is .*missing.pem, but must be a {what} .No such file"):
        check_reachable("https://127.0.0.1:9", create=False)


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
