"""The script that makes the databases, run on a real Postgres, and how MLflow's and Prefect's drivers log in there."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from pliant.flows import servers
from qa.stack.servers import Postgres, installed, postgres, program
from tests.deploy.stack import DEPLOY, services


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a Postgres on which the script has run, as it does when its image starts."""
    installed("initdb", "postgres", "psql")
    folder = tmp_path_factory.mktemp("postgres")
    for name in ("mlflow", "prefect"):
        (folder / f"{name}_password").write_text(f"{name}'s $word\\")
    path = f"{Path(program('psql')).parent}:{os.environ['PATH']}"
    with postgres(folder, databases=()) as server:
        own = {"POSTGRES_USER": Postgres.OWNER, "SECRETS": str(folder), "PATH": path}
        script = str(DEPLOY / "postgres" / "databases.sh")
        subprocess.run([script], env={**os.environ, **server.libpq, **own}, check=True, capture_output=True)
        yield server.port


def address(service, variable, port):
    return services()[service]["environment"][variable].replace("@postgres:5432/", f"@{servers.HOST}:{port}/")


def test_mlflow_logs_in_with_its_password_alone_and_into_its_own_database_alone(port, monkeypatch):
    url = address("mlflow", "MLFLOW_BACKEND_STORE_URI", port)
    monkeypatch.setenv("PGPASSWORD", "mlflow's $word\\")
    with sqlalchemy.create_engine(url).connect() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE mine (x int)"))
    with pytest.raises(sqlalchemy.exc.OperationalError, match="permission denied"):
        sqlalchemy.create_engine(url.removesuffix("mlflow") + "prefect").connect()
    monkeypatch.setenv("PGPASSWORD", "another")
    with pytest.raises(sqlalchemy.exc.OperationalError, match="password"):
        sqlalchemy.create_engine(url).connect()


def test_prefect_logs_in_with_the_password_of_its_environment(port, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "prefect's $word\\")

    async def table():
        engine = create_async_engine(address("prefect-server", "PREFECT_SERVER_DATABASE_CONNECTION_URL", port))
        async with engine.connect() as connection:
            await connection.execute(sqlalchemy.text("CREATE TABLE mine (x int)"))
        await engine.dispose()

    asyncio.run(table())
