"""prefect.yaml's deployment on a real server and worker: its schedule is kept, and the scheduler's runs release models."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flows import servers, settings
from flows.release import open_registry
from registry.mlflow_store import CHAMPION
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE
from tests.fixtures.tokens.tiny import setting

POOL = "pliant"
FIRST = 4.0  # seconds until the first scheduled run; the worker, which takes as long to start, takes a late one too
EVERY = 20.0  # seconds between two: more than the 10 by which the worker starts runs early, so that it starts one
BEGUN = ["PENDING", "RUNNING", "COMPLETED", "FAILED", "CRASHED"]

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Server:
    """Prefect's REST interface and command line. Prefect itself stays out of this process."""

    url: str

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; asked again, as Prefect's own client does, while its database is locked by another writer (503)."""
        data = None if body is None else json.dumps(body).encode()
        headers, until = {"content-type": "application/json"}, time.monotonic() + PATIENCE
        while True:
            request = urllib.request.Request(f"{self.url}/api{path}", data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def command(self, *words: str) -> str:
        process = subprocess.run(
            [sys.executable, "-m", "prefect", "--no-prompt", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert process.returncode == 0, process.stdout + process.stderr
        return process.stdout


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[Server]:
    """With a state of its own; everything that a run needs to know is inherited through the worker."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for name, value in {
        "PLIANT_HOME": str(tmp_path / "home"),
        "PREFECT_HOME": str(tmp_path / "home" / "prefect"),
        "PREFECT_PROFILES_PATH": str(tmp_path / "home" / "profiles.toml"),
        "PREFECT_WORKER_QUERY_SECONDS": "0.5",
        "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",  # 60 by default: until a new schedule has runs
        "PLIANT_PROJECT": str(ROOT),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlruns' / 'mlflow.db'}",
    }.items():
        monkeypatch.setenv(name, value)
    with servers.prefect_server(settings.read(), servers.free_port()) as url:
        monkeypatch.setenv("PREFECT_API_URL", f"{url}/api")
        yield Server(url)


def test_the_deployment_of_the_project_is_run_by_its_schedule_and_releases_a_champion(server):
    server.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
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
    with _worker(project):
        _await_run(server, deployment["id"], BEGUN)
        server.call("DELETE", f"{schedules}/{scheduled['id']}")  # one is enough, however long it takes
        run = _await_run(server, deployment["id"], BEGUN[2:])
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], _log(project))
    assert run["auto_scheduled"]
    assert run["created_by"]["type"] == "SCHEDULE"
    registry = open_registry(project, "tokens")
    names = ["pliant-tokens-backbone", "pliant-tokens-profile", "pliant-tokens-task-digit"]
    assert registry.names() == ["pliant-release-tokens", *names]
    assert [registry.version(name, CHAMPION).version for name in names] == [1, 1, 1]


@contextmanager
def _worker(project: settings.Settings) -> Iterator[None]:
    """Run a worker that takes scheduled runs from the pool."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    with (project.home / "logs" / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield
        finally:
            servers.stop(process)


def _await_run(server: Server, deployment: str, states: list[str]) -> dict[str, Any]:
    """The first run that came to one of these states, whichever."""
    wanted = {
        "flow_runs": {"deployment_id": {"any_": [deployment]}, "state": {"type": {"any_": states}}},
        "sort": "END_TIME_DESC",
    }
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if runs := server.call("POST", "/flow_runs/filter", wanted):
            return runs[-1]
        time.sleep(0.2)
    pytest.fail(f"no scheduled run is {', '.join(states)} within {PATIENCE:.0f} s: {_log(settings.read())}")


def _log(project: settings.Settings) -> str:
    return "\n".join(path.read_text()[-3000:] for path in (project.home / "logs").glob("*.log"))
