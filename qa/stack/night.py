"""Prefect as it runs at night, for one system: a server, its deployments with what alarms start, and a worker.

The deployments are those of `pliant schedule`, with the parameters of a benchmark, and without schedules: a night that came
in between would be another cause for a flow. Prefect's interface is used over HTTP, as a browser would:
Prefect reads its settings when it is imported, which is before its server has an address.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pliant.benchmarks.places import ROOT
from pliant.errors import PliantError
from pliant.flows import servers
from pliant.flows.settings import Settings
from pliant.jsonl import open_log

POOL = "pliant"
ENDED = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
BUSY_SECONDS = 60.0  # within which a server that is busy with another writer answers
Parameters = Mapping[str, Mapping[str, Any]]
"""The name of a flow that runs at night -> its parameters."""


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


class Night:
    """A Prefect server that has the deployments of one system."""

    def __init__(self, url: str) -> None:
        self.url = url

    def runs(self, since: float = 0.0) -> list[Run]:
        """Return the flow runs that were made at or after a time, the first made first."""
        wanted = {"sort": "EXPECTED_START_TIME_ASC", "flow_runs": {"parent_task_run_id": {"is_null_": True}}}
        flows = {flow["id"]: flow["name"] for flow in self.call("POST", "/flows/filter", {})}
        rows = [row for row in self.call("POST", "/flow_runs/filter", wanted) if _time(row["created"]) >= since]
        return [_run(row, flows) for row in rows]

    def start(self, deployment: str) -> str:
        """Order a run of FLOW/DEPLOYMENT, and return its identifier."""
        identity = self.call("GET", f"/deployments/name/{deployment}")["id"]
        return str(
            self.call("POST", f"/deployments/{identity}/create_flow_run", {"state": {"type": "SCHEDULED"}})["id"]
        )

    def await_end(self, id: str, seconds: float) -> Run:
        """Return a run once it has ended. Raises `PliantError` after so many seconds."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for run in self.runs():
                if run.id == id and run.state in ENDED:
                    return run
            time.sleep(1.0)
        raise PliantError(f"the flow run {id} did not end within {seconds:.0f} s")

    def verdict(self, system: str) -> str:
        """Return what the latest release of the flows says of itself, in one line; what is missing where there is none."""
        try:
            artifact = self.call("GET", f"/artifacts/{system}-release/latest")
        except PliantError:
            return "no flow has shown a release"
        return " ".join(str(artifact["data"]).split())[:300]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the server's answer. Raises `PliantError`."""
        data, headers = None if body is None else json.dumps(body).encode(), {"content-type": "application/json"}
        until = time.monotonic() + BUSY_SECONDS
        while True:
            request = urllib.request.Request(f"{self.url}/api{path}", data, headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=BUSY_SECONDS) as answer:
                    return json.loads(answer.read() or b"null")
            except (urllib.error.URLError, OSError) as error:
                busy = not isinstance(error, urllib.error.HTTPError) or error.code in (429, 503)
                if not busy or time.monotonic() > until:
                    raise PliantError(f"Prefect's server does not answer {method} {path}: {error}") from None
            time.sleep(0.5)


@contextmanager
def night(project: Settings, parameters: Parameters, instead: Callable[[], object] | None = None) -> Iterator[Night]:
    """Give a server with the deployments that `parameters` names, and a worker that takes their runs.

    With `instead` nothing is deployed: it is called before the worker starts, and the deployments are those of the database.
    Whatever is started in this context finds the server. Raises `PliantError`.
    """
    with servers.prefect_server(project, servers.free_port()) as url:
        own = {
            "PREFECT_API_URL": f"{url}/api",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
            "PLIANT_PROJECT": str(ROOT),
        }
        former = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            given = Night(url)
            if instead is None:
                _deploy(project, parameters)
            else:
                instead()
            with _worker(project):
                yield given
        finally:
            for name, value in former.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _deploy(project: Settings, parameters: Parameters) -> None:
    path = project.home / "deployments.json"
    path.write_text(json.dumps(parameters))
    command = [sys.executable, "-m", "qa.stack.deploy", str(path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        raise PliantError(f"the flows could not be deployed: {(process.stdout + process.stderr)[-500:]}")


@contextmanager
def _worker(project: Settings) -> Iterator[None]:
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL, "--type", "process"]
    with open_log(project.home / "logs" / "worker.log") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield
        finally:
            servers.stop(process)


def _run(row: Mapping[str, Any], flows: Mapping[str, str]) -> Run:
    state = row.get("state") or {}
    return Run(
        id=row["id"],
        name=row["name"],
        flow=flows.get(row["flow_id"], ""),
        state=row.get("state_type") or "",
        word=row.get("state_name") or "",
        message=state.get("message") or "",
        reason=str((row.get("parameters") or {}).get("reason") or ""),
        begun=_time(row.get("start_time")),
        ended=_time(row.get("end_time")),
    )


def _time(text: str | None) -> float:
    return float("nan") if text is None else datetime.fromisoformat(text).timestamp()
