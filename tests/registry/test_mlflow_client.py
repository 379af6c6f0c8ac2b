"""An address says which registry it is, is shown without secrets, and is checked before MLflow tries it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pliant.errors import RegistryError, UnreachableError
from pliant.registry import mlflow_client
from pliant.registry.mlflow_client import (
    CLIENT,
    TRUSTED,
    UNCHECKED,
    check_reachable,
    current_address,
    database,
    driver_address,
    shown,
)
from tests.fixtures.certificate import certificate
from tests.fixtures.listener import listening


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


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, Path]]:
    """A server with a certificate for 127.0.0.1: its address, and the certificate."""
    own = certificate(folder, 1.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.path, own.key)
    with listening(lambda message: (200, b""), tls=context) as listener:
        yield listener.url, own.path


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
    with server(tmp_path) as (url, path):
        address = url.replace("://", "://me:hidden@")
        refused = unreachable(address)
        monkeypatch.setenv(name, str(path))
        check_reachable(address, create=False)
    assert refused == (
        f"the certificate of the MLflow server at {url} is not valid (self-signed certificate): "
        f"{TRUSTED} names the file of those to trust"
    )


@pytest.mark.parametrize(
    ("name", "what"), [(TRUSTED, "file of certificates in PEM"), (CLIENT, "certificate with its key")]
)
def test_a_variable_that_names_no_certificate_is_named(tmp_path, monkeypatch, name, what):
    monkeypatch.setenv(name, str(tmp_path / "missing.pem"))
    with pytest.raises(RegistryError, match=f"^{name} is .*missing.pem, but must be a {what} .No such file"):
        check_reachable("https://127.0.0.1:9", create=False)
