"""prefect.yaml's deployment on a real server and worker: its schedule is kept, and the scheduler's runs release models."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from flows import settings
from flows.release import open_registry
from registry.mlflow_store import CHAMPION
from tests.fixtures.tokens.tiny import setting
from tests.flows.watch.deployments import BEGUN, ENDED, POOL, Server, await_run, logs, prefect_of, worker

FIRST = 4.0  # seconds until the first scheduled run; the worker, which takes as long to start, takes a late one too
EVERY = 20.0  # seconds between two: more than the 10 by which the worker starts runs early, so that it starts one

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    with prefect_of(tmp_path) as server:
        yield server


def test_the_deployment_of_the_project_is_run_by_its_schedule_and_releases_a_champion(server):
    for pool in (POOL, "pliant-notify"):
        server.call("POST", "/work_pools/", {"name": pool, "type": "process"})
    server.command("deploy", "--all")
    deployment = server.call("GET", "/deployments/name/tokens/nightly")
    assert [s["schedule"]["cron"] for s in deployment["schedules"] if s["active"]] == ["0 3 * * *"]
    assert deployment["work_pool_name"] == POOL

    soon = datetime.now(UTC) + timedelta(seconds=FIRST)
    often = {"interval": EVERY, "anchor_date": soon.isoformat(), "timezone": "UTC"}
    frequent = {"schedule": often, "active": True, "parameters": {"overrides": setting()}}
    schedules = f"/deployments/{deployment['id']}/schedules"
    (scheduled,) = server.call("POST", schedules, [frequent])
    project = settings.read()
    with worker():
        await_run(server, deployment["id"], BEGUN)
        server.call("DELETE", f"{schedules}/{scheduled['id']}")  # one is enough, however long it takes
        run, *_ = await_run(server, deployment["id"], ENDED)
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], logs())
    assert run["auto_scheduled"]
    assert run["created_by"]["type"] == "SCHEDULE"
    registry = open_registry(project, "tokens")
    names = ["pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit"]
    assert registry.names() == ["pliant-release-tokens", *names]
    assert [registry.version(name, CHAMPION).version for name in names] == [1, 1, 1]
