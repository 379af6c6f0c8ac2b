"""A Postgres server of its own, with a database each for MLflow and Prefect, as deploy/postgres makes them."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pliant.errors import PliantError
from pliant.flows import servers
from pliant.jsonl import open_log
from qa.stack.programs import program

DATABASES = ("mlflow", "prefect")
OWNER = "pliant"
UNPRIVILEGED = ("postgres", "nobody")  # whom root runs it as, since Postgres refuses to be run by root
SECONDS = 60.0  # within which it is up


class Postgres:
    """A server that can be stopped and started again, on the same port with the same data."""

    def __init__(self, folder: Path, log: Path, user: str | None) -> None:
        self._folder, self._log, self._user = folder, log, user
        self.password, self.port = secrets.token_urlsafe(16), servers.free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, database: str, driver: str) -> str:
        """Return SQLAlchemy's address of a database."""
        return f"postgresql+{driver}://{OWNER}:{self.password}@{servers.HOST}:{self.port}/{database}"

    def create(self) -> None:
        """Make the data folder. Raises `PliantError`."""
        secret = self._folder / "password"
        secret.write_text(self.password)
        if self._user is not None:
            shutil.chown(self._folder, self._user)
            shutil.chown(secret, self._user)
        words = ["--pgdata", str(self._folder / "data"), "--username", OWNER, "--pwfile", str(secret)]
        words += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"]
        done = subprocess.run(
            [program("initdb"), *words], capture_output=True, text=True, user=self._user, cwd=self._folder, check=False
        )
        secret.unlink()
        if done.returncode:
            raise PliantError(f"Postgres's data cannot be made: {(done.stderr or done.stdout).strip()[-300:]}")

    def start(self) -> None:
        """Start the server, and return when it takes connections. Raises `PliantError`."""
        words = ["-D", str(self._folder / "data"), "-h", servers.HOST, "-p", str(self.port), "-k", str(self._folder)]
        with open_log(self._log) as log:
            self._process = subprocess.Popen(
                [program("postgres"), *words],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
                start_new_session=True,
            )
        self.run("SELECT 1")

    def stop(self) -> None:
        """Stop the server; its clients lose their connections."""
        if self._process is not None:
            servers.stop(self._process)
            self._process = None

    def run(self, statement: str) -> None:
        """Run a statement, as soon as the server is up. Raises `PliantError`."""
        import psycopg

        until = time.monotonic() + SECONDS
        login = {"host": servers.HOST, "port": self.port, "user": OWNER, "password": self.password}
        while True:
            try:
                with psycopg.connect(**login, dbname="postgres", autocommit=True) as connection:
                    connection.execute(statement.encode())
                return
            except psycopg.OperationalError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > until:
                    raise PliantError(f"Postgres is not up ({error}); its log is {self._log}") from None
            time.sleep(0.1)


@contextmanager
def postgres(logs: Path, databases: bool = True) -> Iterator[Postgres]:
    """Give a server, with both databases or none. Its data lie in a folder for temporary files, maybe another user's."""
    user = None
    if os.geteuid() == 0:
        user = next((each.pw_name for each in pwd.getpwall() if each.pw_name in UNPRIVILEGED), None)
        if user is None:
            raise PliantError(f"Postgres must not be run by root, and this machine has none of {UNPRIVILEGED}")
    with tempfile.TemporaryDirectory(prefix="pliant-postgres-") as folder:
        server = Postgres(Path(folder), logs / "postgres.log", user)
        server.create()
        try:
            server.start()
            for name in DATABASES if databases else ():
                server.run(f"CREATE DATABASE {name}")
            yield server
        finally:
            server.stop()
