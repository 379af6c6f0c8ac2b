"""MLflow's client of a registry, once its database has answered: MLflow itself tries one that does not for minutes."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from pliant.errors import RegistryError
from pliant.registry.address import check_reachable, current_address, database

CONNECT_SECONDS = 5


def client_of(address: str) -> Any:
    """Return MLflow's client. Raises `RegistryError` for a file that cannot be used, and what SQLAlchemy raises."""
    if not address.startswith("http"):
        path = database(address)
        if path is not None:
            _check_access(path)
        if path is None or path.is_file():  # or a file would be made
            _connect(address)
    from mlflow import MlflowClient

    return MlflowClient(address, address)


def _check_access(path: Path) -> None:
    if path.exists() and not os.access(path, os.R_OK):
        raise RegistryError(f"the registry's database {path} cannot be read by this user: Permission denied")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise RegistryError(f"the registry's folder {path.parent} cannot be written by this user: Permission denied")


def has_all_tables(uri: str) -> bool:
    """Whether a registry's database has all of MLflow's tables, in MLflow's present form; a server sees to its own.

    Opening one that has not makes them, also beside another process that is making them, and then fails. Raises
    `RegistryError` where nothing answers or may be read, and what SQLAlchemy raises.
    """
    check_reachable(uri, create=False)
    if uri.startswith("http"):
        return True
    if (path := database(uri)) is not None:
        _check_access(path)
    from mlflow.store.db.utils import _get_latest_schema_revision, _get_schema_version

    return bool(_get_schema_version(_engine(current_address(uri))) == _get_latest_schema_revision())


@lru_cache(maxsize=8)
def _connect(address: str) -> None:
    """Connect to a database, and close the connection. Only what succeeded is remembered: MLflow keeps connections then."""
    _engine(address).connect().close()


def _engine(address: str) -> Any:
    """Return SQLAlchemy's engine of a database, which keeps no connection."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    limit = {"connect_timeout": CONNECT_SECONDS} if address.startswith("postgres") else {}
    return create_engine(address, poolclass=NullPool, connect_args=limit)
