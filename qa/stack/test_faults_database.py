"""Postgres, in which MLflow and Prefect keep everything, is gone for a while: amid a flow, and as it publishes."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pliant.benchmarks.harness import Skipped
from pliant.flows import settings
from pliant.flows.release import open_registry
from qa.prefect_server import ENDED, POOL, Server, await_run, logs, prefect_of, until, worker
from qa.stack.postgres import Postgres, postgres
from qa.stack.programs import program
from qa.stack.publishing import NAME
from qa.stack.stack import mlflow_server
from qa.targets import exchange
from tests.fixtures.bins.published import settings_for
from tests.fixtures.live import running
from tests.fixtures.runs import PATIENCE

AWAY = 25.0  # seconds without Postgres
FLOW = "qa/stack/publishing.py:publishing"


class Clients:
    """One client that asks ten times a second; `failed`: what went wrong, with the seconds since the first request."""

    def __init__(self, url: str) -> None:
        self._url, self._ended, self._begun = url, threading.Event(), time.monotonic()
        self.answered, self.failed = 0, list[str]()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            try:
                ask(self._url, "/predict", {"inputs": "a dog"})
                self.answered += 1
            except (OSError, ValueError) as error:
                self.failed.append(f"{time.monotonic() - self._begun:.1f} s: {error}")

    def end(self) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)


def ask(url: str, path: str, body: Any = None) -> Any:
    status, _, content = exchange(url, "POST" if body else "GET", path, json.dumps(body).encode() if body else None)
    if status != 200:
        raise ValueError(f"{path} is answered with {status}: {content[:200]!r}")
    return json.loads(content)


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> Iterator[Postgres]:
    for name in ("initdb", "postgres"):
        try:
            program(name)
        except Skipped as error:
            pytest.skip(str(error))
    with postgres(tmp_path_factory.mktemp("logs")) as server:
        yield server


@pytest.fixture(scope="module")
def server(database, tmp_path_factory) -> Iterator[tuple[Server, str]]:
    """Prefect with a worker and the deployment, and its identifier; a first release is in the registry."""
    home = tmp_path_factory.mktemp("stack")
    connection = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": database.address("prefect", "asyncpg")}
    with (
        mlflow_server(home, database.address("mlflow", "psycopg"), home / "home") as mlflow,
        prefect_of(home, MLFLOW_TRACKING_URI=mlflow, **connection) as given,
    ):
        given.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
        deployment = given.deploy(FLOW, "publishing")
        with worker():
            given.start(deployment, folder=str(home), seed=100)
            await_run(given, deployment, ENDED)
            yield given, deployment


@pytest.mark.parametrize("moment", ["work", "commit"])
def test_a_run_outlasts_postgres_and_clients_notice_nothing(moment, server, database, tmp_path):
    prefect, deployment = server
    before = len(prefect.runs(deployment))
    registry = open_registry(settings.read(), "bins")
    first = registry.release("bins")
    own = settings_for(tmp_path, registry_uri=settings.read().tracking_uri, refresh_seconds=2.0)
    with running(own, tmp_path) as service:
        url = service.url
        clients = Clients(url)
        (tmp_path / f"hold-{moment}").touch()
        run = prefect.start(deployment, folder=str(tmp_path), seed=before)
        until((tmp_path / moment).exists)
        database.stop()
        (tmp_path / f"hold-{moment}").unlink()
        time.sleep(AWAY)
        during = ask(url, "/status")
        database.start()
        ended = {each["id"]: each for each in await_run(prefect, deployment, ENDED, before + 1)}
        assert ended[run]["state_type"] == "COMPLETED", logs()
        until(lambda: ask(url, "/status")["release"] == first.number + 1)
        clients.end()
    release = registry.release("bins")
    assert set(release.versions) == {f"pliant-bins-{NAME}", f"pliant-bins-encoder-{NAME}"}
    assert clients.failed == [] and clients.answered > AWAY
    assert during["release"] == first.number and during["refresh"]["outcome"] == "failed"
