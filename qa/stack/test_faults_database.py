"""Postgres, in which MLflow and Prefect keep everything, is gone for a while: amid a flow, and as it publishes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pliant.flows import settings
from pliant.flows.release import open_registry
from qa.clients import asking
from qa.prefect_server import ENDED, POOL, Server, await_run, logs, prefect_of, until, worker
from qa.stack.publishing import NAME
from qa.stack.servers import Postgres, connect, installed, mlflow_server, postgres
from tests.fixtures.bins.published import settings_for
from tests.fixtures.live import running

AWAY = 25.0  # seconds without Postgres
FLOW = "qa/stack/publishing.py:publishing"


@pytest.fixture(scope="module")
def servers(tmp_path_factory) -> Iterator[tuple[Postgres, Server, str]]:
    """Postgres, and Prefect with a worker and the deployment, and its identifier; a first release is in the registry."""
    installed("initdb", "postgres")
    home = tmp_path_factory.mktemp("stack")
    with postgres(home) as database:
        connection = {"PREFECT_SERVER_DATABASE_CONNECTION_URL": database.address("prefect", "asyncpg")}
        with (
            mlflow_server(home, database.address("mlflow", "psycopg"), home / "home") as mlflow,
            prefect_of(home, MLFLOW_TRACKING_URI=mlflow, **connection) as prefect,
        ):
            prefect.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
            deployment = prefect.deploy(FLOW, "publishing")
            with worker():
                prefect.start(deployment, folder=str(home), seed=100)
                await_run(prefect, deployment, ENDED)
                yield database, prefect, deployment


@pytest.mark.parametrize("moment", ["work", "commit"])
def test_a_run_outlasts_postgres_and_clients_notice_nothing(moment, servers, tmp_path):
    database, prefect, deployment = servers
    before = len(prefect.runs(deployment))
    registry = open_registry(settings.read(), "bins")
    first = registry.release("bins")
    own = settings_for(tmp_path, registry_uri=settings.read().tracking_uri, refresh_seconds=2.0)
    with (
        running(own, tmp_path) as service,
        connect(service.url) as client,
        asking(service.url, ("POST", "/predict", b'{"inputs": "a dog"}'), clients=1, pause=0.1) as others,
    ):
        (tmp_path / f"hold-{moment}").touch()
        run = prefect.start(deployment, folder=str(tmp_path), seed=before)
        until((tmp_path / moment).exists)
        database.stop()
        (tmp_path / f"hold-{moment}").unlink()
        time.sleep(AWAY)
        during = client.get("/status").json()
        database.start()
        ended = {each["id"]: each for each in await_run(prefect, deployment, ENDED, before + 1)}
        assert ended[run]["state_type"] == "COMPLETED", logs()
        until(lambda: client.get("/status").json()["release"] == first.number + 1)
        others.stop()
    assert set(registry.release("bins").versions) == {f"pliant-bins-{NAME}", f"pliant-bins-encoder-{NAME}"}
    assert others.reasons == [] and len(others.seconds) > AWAY
    assert during["release"] == first.number and during["refresh"]["outcome"] == "failed"
