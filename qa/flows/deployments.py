"""A real Prefect server with a worker, by its REST interface and command line. Prefect itself stays out of this process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pliant.flows import servers, settings
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE

POOL = "pliant"
BEGUN = ["PENDING", "RUNNING", "COMPLETED", "FAILED", "CRASHED"]
ENDED = BEGUN[2:]


@dataclass(frozen=True)
class Server:
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

    def deploy(self, entrypoint: str, flow: str, **more: Any) -> str:
        """Make a deployment `nightly` of a flow in this repository, one run at a time; gives its identifier."""
        identity = self.call("POST", "/flows/", {"name": flow})["id"]
        pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}]
        body = {"name": "nightly", "flow_id": identity, "entrypoint": entrypoint, "path": ".", "pull_steps": pull}
        queue = {"collision_strategy": "ENQUEUE"}
        pool = {"work_pool_name": POOL, "concurrency_limit": 1, "concurrency_options": queue}
        return str(self.call("POST", "/deployments/", body | pool | more)["id"])

    def start(self, deployment: str, **parameters: Any) -> str:
        """Order a run; gives its identifier."""
        path = f"/deployments/{deployment}/create_flow_run"
        return str(self.call("POST", path, {"parameters": parameters, "state": {"type": "SCHEDULED"}})["id"])

    def runs(self, deployment: str, states: list[str] | None = None) -> list[dict[str, Any]]:
        """The runs of a deployment, the first to begin first."""
        chosen: dict[str, Any] = {"deployment_id": {"any_": [deployment]}}
        if states:
            chosen["state"] = {"type": {"any_": states}}
        wanted = {"flow_runs": chosen, "sort": "EXPECTED_START_TIME_ASC"}
        return list(self.call("POST", "/flow_runs/filter", wanted))

    def events(self, **event_filter: Any) -> list[dict[str, Any]]:
        body = {"filter": event_filter, "limit": 50}
        return list(self.call("POST", "/events/filter", body)["events"])


@contextmanager
def prefect_of(home: Path, **variables: str) -> Iterator[Server]:
    """With a state of its own; everything that a run needs to know is inherited through the worker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        environment = {
            "PLIANT_HOME": str(home / "home"),
            "PREFECT_HOME": str(home / "home" / "prefect"),
            "PREFECT_PROFILES_PATH": str(home / "home" / "profiles.toml"),
            "PREFECT_WORKER_QUERY_SECONDS": "0.5",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",  # 60 by default: until a new schedule has runs
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "1",  # 30 by default
            "PLIANT_PROJECT": str(ROOT),
            "MLFLOW_TRACKING_URI": f"sqlite:///{home / 'mlruns' / 'mlflow.db'}",
        }
        for name, value in {**environment, **variables}.items():
            patch.setenv(name, value)
        with servers.prefect_server(settings.read(), servers.free_port()) as url:
            patch.setenv("PREFECT_API_URL", f"{url}/api")
            yield Server(url)


SCHEDULE = """
import sys
from pathlib import Path
from pliant.flows import settings
project = settings.read()
settings.prepare(project)
from pliant.flows.watch.automations import schedule
for system in sys.argv[2:]:
    schedule(project, system, Path(sys.argv[1]), None, "UTC")
"""


def schedule(*systems: str) -> None:
    """Schedule systems with a file that sets nothing, in one process: each imports what it runs, which takes long."""
    file = settings.read().home / "empty.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    python("-c", SCHEDULE, str(file), *systems)


def python(*words: str) -> str:
    """What a Python process prints, which has to end well."""
    process = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@contextmanager
def worker(pool: str = POOL) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that takes scheduled runs from the pool, and give its process."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    with (settings.read().home / "logs" / f"worker-{pool}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield process
        finally:
            servers.stop(process)


def await_run(server: Server, deployment: str, states: list[str], count: int = 1) -> list[dict[str, Any]]:
    """The runs that came to one of these states, whichever, once they are so many."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if len(runs := server.runs(deployment, states)) >= count:
            return runs
        time.sleep(0.2)
    pytest.fail(f"no {count} runs are {', '.join(states)} within {PATIENCE:.0f} s: {logs()}")


def logs() -> str:
    return "\n".join(path.read_text()[-3000:] for path in (settings.read().home / "logs").glob("*.log"))


def notices() -> list[dict[str, str]]:
    """What people were told."""
    path = Path(settings.read().home) / "notifications.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def until(read: Callable[[], Any]) -> Any:
    """What `read` gives as soon as that is something."""
    end = time.monotonic() + PATIENCE
    while not (values := read()):
        assert time.monotonic() < end, logs()
        time.sleep(0.2)
    return values
