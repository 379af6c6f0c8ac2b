"""A real Prefect server with workers, by its REST interface and command line, as it runs at night.

Prefect itself stays out of this process: it reads its settings when it is imported, before its server has an address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.flows.settings import Settings
from pliant.jsonl import open_log
from tests.fixtures.places import ROOT
from tests.fixtures.runs import PATIENCE

POOL = "pliant"
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
BEGUN = ("PENDING", "RUNNING", *ENDED[:3])
BUSY = 120.0  # seconds within which a server that is busy with another writer answers
DEPLOY = """
import json, sys
from pliant.flows import settings
from pliant.flows.watch import automations, deployments
settings.prepare()
parameters = json.loads(sys.argv[1])
deployments.prepare()
for name, flow in deployments.nightly_flows().items():
    if name in parameters:
        deployments.deploy(flow, parameters[name])
automations.install(prefix=automations.ALARM_PREFIX)
"""
SCHEDULE = """
import sys
from pathlib import Path
from pliant.flows import settings
project = settings.prepare()
from pliant.flows.watch.automations import schedule
for system in sys.argv[2:]:
    schedule(project, system, Path(sys.argv[1]), None, "UTC")
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A flow run. Times in seconds since 1970; NaN: not yet. `reason`: the alarm that started it."""

    id: str
    name: str
    flow: str
    state: str  # type of Prefect's state
    word: str  # name of Prefect's state, such as Skipped
    message: str
    reason: str
    begun: float
    ended: float


@dataclass(frozen=True)
class Server:
    url: str

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer; asked again while the server is busy with another writer. Raises `PliantError`."""
        last = time.monotonic() + BUSY
        while True:
            try:
                url = f"{self.url}/api{path}"
                answer = httpx.request(
                    method, url, json=body, timeout=BUSY, follow_redirects=True, trust_env=False, verify=False
                )
                answer.raise_for_status()
                return answer.json() if answer.content else None
            except httpx.HTTPError as error:
                answered = isinstance(error, httpx.HTTPStatusError) and error.response.status_code not in (429, 503)
                if answered or time.monotonic() > last:
                    raise PliantError(f"Prefect's server does not answer {method} {path}: {error}") from None
            time.sleep(0.2)

    def deployment(self, name: str) -> str:
        """Return the identifier of FLOW/DEPLOYMENT."""
        return str(self.call("GET", f"/deployments/name/{name}")["id"])

    def deploy(self, entrypoint: str, flow: str) -> str:
        """Make a deployment `nightly` of a flow in this repository, one run at a time; gives its identifier."""
        identity = self.call("POST", "/flows/", {"name": flow})["id"]
        pull = [{"prefect.deployments.steps.set_working_directory": {"directory": str(ROOT)}}]
        body = {"name": "nightly", "flow_id": identity, "entrypoint": entrypoint, "path": ".", "pull_steps": pull}
        queue = {"collision_strategy": "ENQUEUE"}
        pool = {"work_pool_name": POOL, "concurrency_limit": 1, "concurrency_options": queue}
        return str(self.call("POST", "/deployments/", body | pool)["id"])

    def start(self, deployment: str, **parameters: Any) -> str:
        """Order a run of a deployment; gives its identifier."""
        body = {"state": {"type": "SCHEDULED"}} | ({"parameters": parameters} if parameters else {})
        return str(self.call("POST", f"/deployments/{deployment}/create_flow_run", body)["id"])

    def runs(self, deployment: str, states: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The runs of a deployment, as the server has them, the first to begin first."""
        chosen = {"deployment_id": {"any_": [deployment]}} | ({"state": {"type": {"any_": states}}} if states else {})
        wanted = {"flow_runs": chosen, "sort": "EXPECTED_START_TIME_ASC"}
        return list(self.call("POST", "/flow_runs/filter", wanted))

    def flow_runs(self, since: float = 0.0) -> list[Run]:
        """Return the flow runs that were made at or after a time, the first made first."""
        wanted = {"sort": "EXPECTED_START_TIME_ASC", "flow_runs": {"parent_task_run_id": {"is_null_": True}}}
        flows = {flow["id"]: flow["name"] for flow in self.call("POST", "/flows/filter", {})}
        return [
            Run(
                id=row["id"],
                name=row["name"],
                flow=flows.get(row["flow_id"], ""),
                state=row.get("state_type") or "",
                word=row.get("state_name") or "",
                message=(row.get("state") or {}).get("message") or "",
                reason=str((row.get("parameters") or {}).get("reason") or ""),
                begun=_time(row.get("start_time")),
                ended=_time(row.get("end_time")),
            )
            for row in self.call("POST", "/flow_runs/filter", wanted)
            if _time(row["created"]) >= since
        ]

    def await_end(self, id: str, seconds: float) -> Run:
        """Return a run once it has ended. Raises `PliantError` after so many seconds."""
        return until(
            lambda: next((run for run in self.flow_runs() if run.id == id and run.state in ENDED), None), seconds
        )

    def verdict(self, system: str) -> str:
        """Return what the latest release of the flows says of itself, in one line; what is missing where there is none."""
        try:
            artifact = self.call("GET", f"/artifacts/{system}-release/latest")
        except PliantError:
            return "no flow has shown a release"
        return " ".join(str(artifact["data"]).split())[:300]

    def events(self, **event_filter: Any) -> list[dict[str, Any]]:
        return list(self.call("POST", "/events/filter", {"filter": event_filter, "limit": 50})["events"])


def _time(text: str | None) -> float:
    return float("nan") if text is None else datetime.fromisoformat(text).timestamp()


@contextmanager
def prefect_of(home: Path, **variables: str) -> Iterator[Server]:
    """A server with a state of its own; everything that a run needs to know is inherited through the worker."""
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
    with patch.dict(os.environ, environment | variables):
        os.environ.pop("PREFECT_API_URL", None)
        with servers.prefect_server(settings.read(), servers.free_port()) as url:
            os.environ["PREFECT_API_URL"] = f"{url}/api"
            yield Server(url)


@contextmanager
def night(
    project: Settings, parameters: Mapping[str, Mapping[str, Any]], instead: Callable[[], object] | None = None
) -> Iterator[Server]:
    """Give a server with the deployments of `pliant schedule`, and a worker that takes their runs.

    `parameters`: name of a flow that runs at night -> its parameters. No deployment has a schedule, which would be another
    cause for a flow than alarms. With `instead` nothing is deployed: it is called before the worker starts, and the
    deployments are those of the database. Whatever is started in this context finds the server. Raises `PliantError`.
    """
    with servers.prefect_server(project, servers.free_port()) as url:
        own = {
            "PREFECT_API_URL": f"{url}/api",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
            "PLIANT_PROJECT": str(ROOT),
        }
        with patch.dict(os.environ, own):
            if instead is None:
                python("-c", DEPLOY, json.dumps(parameters))
            else:
                instead()
            with worker():
                yield Server(url)


def schedule(*systems: str) -> None:
    """Schedule systems with a file that sets nothing, in one process: each imports what it runs, which takes long."""
    file = settings.read().home / "empty.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    python("-c", SCHEDULE, str(file), *systems)


def python(*words: str) -> str:
    """What a Python process prints, which has to end well. Raises `PliantError`."""
    process = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        raise PliantError(f"{' '.join(words)[:200]}: {(process.stdout + process.stderr)[-3000:]}")
    return process.stdout


@contextmanager
def worker(pool: str = POOL) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker that takes scheduled runs from the pool, and give its process."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
    with open_log(settings.read().home / "logs" / f"worker-{pool}.log") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield process
        finally:
            servers.stop(process)


def await_run(server: Server, deployment: str, states: Sequence[str], count: int = 1) -> list[dict[str, Any]]:
    """The runs that came to one of these states, whichever, once they are so many."""
    return until(lambda: runs if len(runs := server.runs(deployment, states)) >= count else [])


def logs() -> str:
    return "\n".join(path.read_text()[-3000:] for path in (settings.read().home / "logs").glob("*.log"))


def notices() -> list[dict[str, str]]:
    """What people were told."""
    path = settings.read().home / "notifications.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def until(read: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """What `read` gives as soon as that is something. Raises `PliantError` with the logs after so many seconds."""
    end = time.monotonic() + seconds
    while not (values := read()):
        if time.monotonic() > end:
            raise PliantError(f"nothing came within {seconds:.0f} s: {logs()}")
        time.sleep(0.2)
    return values
