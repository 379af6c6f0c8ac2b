"""An address says which registry it is, is shown without secrets, and is checked before MLflow tries it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.errors import RegistryError, UnreachableError
from registry import address
from registry.address import check_reachable, current_address, database, driver_address, is_local, local_folder, shown


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


@pytest.mark.parametrize(
    ("uri", "folder"),
    [("/a/b", Path("/a/b")), ("file:///a/b%20c", Path("/a/b c")), ("a/b", Path("a/b")), ("s3://bucket/a", None)],
)
def test_a_folder_of_this_machine_is_told_from_one_elsewhere(uri, folder):
    assert is_local(uri) is (folder is not None)
    if folder is not None:
        assert local_folder(uri) == folder


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
    monkeypatch.setattr(address, "find_spec", lambda name: name if name in installed else None)
    assert driver_address(uri) == address_


@pytest.mark.parametrize(
    ("uri", "driver"), [("postgres://me:hidden@h/db", "psycopg"), ("postgresql+pg8000://me:hidden@h/db", "pg8000")]
)
def test_without_its_driver_a_postgres_address_is_an_error_that_says_what_to_install(uri, driver, monkeypatch):
    monkeypatch.setattr(address, "find_spec", lambda name: None)
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


def test_what_is_no_address_is_named():
    with pytest.raises(RegistryError, match="is no address of a registry"):
        database("http://[broken")


def test_mlflows_own_settings_of_the_user_are_kept(monkeypatch):
    monkeypatch.setenv("MLFLOW_LOGGING_LEVEL", "INFO")
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    address.set_defaults()
    assert address.os.environ["MLFLOW_LOGGING_LEVEL"] == "INFO"
    assert address.os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
