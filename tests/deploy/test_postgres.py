"""The script that makes the databases, run on a real Postgres, and how MLflow's and Prefect's drivers log in there."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from flows.servers import free_port, stop
from tests.deploy.stack import DEPLOY, services

pytestmark = pytest.mark.slow
NAMES = ("mlflow", "prefect")


def program(name):
    folders = [str(path) for path in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    path = shutil.which(name) or shutil.which(name, path=":".join(folders))
    if path is None:
        pytest.skip(f"Postgres's {name} is not here")
    return path


@pytest.fixture(scope="module")
def port():
    """Run Postgres with the script in its start, as its image does, and give its port. It refuses to be run by root."""
    user = "nobody" if os.getuid() == 0 else None
    initdb, postgres = program("initdb"), program("postgres")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in NAMES:
            (home / f"{name}_password").write_text(f"{name}'s $word\\")
        if user:
            os.chown(home, pwd.getpwnam(user).pw_uid, -1)
        words = ["--auth-local=trust", "--auth-host=scram-sha-256", "--username=postgres", "--no-sync"]
        subprocess.run([initdb, *words, str(home / "data")], user=user, cwd=home, check=True, capture_output=True)
        number = free_port()
        options = ["-D", str(home / "data"), "-k", folder, "-p", str(number), "-h", "127.0.0.1"]
        with (home / "log").open("w") as log:
            server = subprocess.Popen([postgres, *options], user=user, cwd=home, stderr=log, start_new_session=True)
        try:
            wait(number)
            make_databases(home, number)
            yield number
        finally:
            server.send_signal(signal.SIGINT)  # which does not wait until clients leave
            stop(server)


def wait(number):
    until = time.monotonic() + 30
    while subprocess.run([program("pg_isready"), "-h", "127.0.0.1", "-p", str(number)], capture_output=True).returncode:
        assert time.monotonic() < until
        time.sleep(0.05)


def make_databases(home, number):
    environment = {**os.environ, "PGHOST": str(home), "PGPORT": str(number), "SECRETS": str(home)}
    environment |= {"POSTGRES_USER": "postgres", "PATH": f"{Path(program('psql')).parent}:{os.environ['PATH']}"}
    subprocess.run([str(DEPLOY / "postgres" / "databases.sh")], env=environment, check=True, capture_output=True)


def address(service, variable, number):
    return services()[service]["environment"][variable].replace("@postgres:5432/", f"@127.0.0.1:{number}/")


def test_mlflow_logs_in_with_the_password_of_its_environment(port, monkeypatch):
    url = address("mlflow", "MLFLOW_BACKEND_STORE_URI", port)
    monkeypatch.setenv("PGPASSWORD", "mlflow's $word\\")
    with sqlalchemy.create_engine(url).connect() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE mine (x int)"))
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


def test_neither_may_look_into_the_others_database(port, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "mlflow's $word\\")
    url = address("mlflow", "MLFLOW_BACKEND_STORE_URI", port).removesuffix("mlflow") + "prefect"
    with pytest.raises(sqlalchemy.exc.OperationalError, match="permission denied"):
        sqlalchemy.create_engine(url).connect()
