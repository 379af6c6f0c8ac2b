"""All servers of the stack, started one after the other, and what clients and operators see of them."""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pliant.benchmarks.endpoint import serving
from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.flows.settings import Settings
from qa.stack.changes import variables
from qa.stack.night import ENDED, Night, night
from qa.stack.plans import PLANS, Plan
from qa.stack.postgres import Postgres, postgres
from tests.fixtures.certificate import Certificate, certificate

SYSTEMS = ("tokens", "bins")
"""Of which there is an endpoint by default; two are enough to show that one proxy and one Prometheus serve several."""
Sizes = Mapping[str, Mapping[str, Any]]
"""System -> what is laid over the parameters of its flows, table by table."""
AS_PLANNED: Sizes = {}
SOON = 3.0  # seconds until a schedule begins
HOUR = 3600.0
LOOPS = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",  # 60 by default, until a new schedule has runs
    "PREFECT_SERVER_SERVICES_SCHEDULER_DEPLOYMENT_BATCH_SIZE": "100",
}


@dataclass(slots=True)
class Stack:
    """Servers that run. `services`: system -> address of its endpoint."""

    project: Settings
    database: Postgres
    mlflow: str
    prefect: Night
    certificate: Certificate
    keys: Path
    plans: Mapping[str, Plan]
    services: dict[str, str] = field(default_factory=dict)

    def schedule(self, system: str, wait: float = SOON) -> float:
        """Give a system's nightly deployment a schedule that begins after so many seconds; return that moment, in seconds
        since 1970."""
        identity = self.prefect.call("GET", f"/deployments/name/{system}/nightly")["id"]
        begin = time.time() + wait
        anchor = datetime.fromtimestamp(begin, UTC).isoformat()
        schedule = {"interval": HOUR, "anchor_date": anchor, "timezone": "UTC"}
        self.prefect.call("POST", f"/deployments/{identity}/schedules", [{"schedule": schedule, "active": True}])
        return begin

    def await_scheduled(self, system: str, begin: float, seconds: float) -> None:
        """Return when the run that the schedule began has ended well. Raises `PliantError`."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            runs = [run for run in self.prefect.runs() if run.flow == system and run.state in ENDED]
            if runs:
                if runs[0].state != "COMPLETED":
                    raise PliantError(f"the run of {system} ended as {runs[0].word}: {runs[0].message}")
                if runs[0].begun < begin - 1:
                    raise PliantError(f"a run of {system} began before its schedule")
                return
            time.sleep(0.5)
        raise PliantError(f"no run of {system} came to its end within {seconds:.0f} s of its schedule")

    @contextmanager
    def endpoint(self, system: str, **options: object) -> Iterator[str]:
        """Run a system's endpoint, which serves what the registry says, and asks for keys. `options`: of its settings."""
        with serving(system, 0, self.project, keys_file=self.keys, trusted_proxies=servers.HOST, **options) as url:
            self.services[system] = url
            yield url
            del self.services[system]


@dataclass(frozen=True, slots=True)
class Restoration:
    """What is called while a stack starts: `databases` when Postgres alone is up, `runs` when all is but the worker."""

    databases: Callable[[Postgres], object]
    runs: Callable[[], object]


@contextmanager
def stack(
    home: Path,
    keys: Path,
    names: Sequence[str] = SYSTEMS,
    restoration: Restoration | None = None,
    sizes: Sizes = AS_PLANNED,
) -> Iterator[Stack]:
    """Run Postgres, MLflow, Prefect and a worker, with the flows of systems deployed in the sizes of planted changes.

    With a `restoration` nothing is deployed but what it brings back. `sizes`: of flows, where they are others than those of
    planted changes.
    """
    with ExitStack() as running:
        home.mkdir(parents=True, exist_ok=True)
        database = running.enter_context(postgres(home / "logs"))
        running.enter_context(
            variables(
                {
                    "PLIANT_HOME": str(home),
                    "PREFECT_HOME": str(home / "prefect"),
                    "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.address("prefect", "asyncpg"),
                    **LOOPS,
                }
            )
        )
        if restoration is not None:
            restoration.databases(database)
        mlflow = running.enter_context(mlflow_server(home, database))
        running.enter_context(variables({"MLFLOW_TRACKING_URI": mlflow}))
        project = settings.read()
        settings.prepare(project)
        plans = {system: _plan(system, home, sizes.get(system, {})) for system in names}
        parameters = {entry: own for plan in plans.values() for entry, own in plan.parameters.items()}
        prefect = running.enter_context(night(project, parameters, restoration.runs if restoration else None))
        yield Stack(project, database, mlflow, prefect, certificate(home / "tls"), keys, plans)


def _plan(system: str, home: Path, sizes: Mapping[str, Any]) -> Plan:
    """Return what clients of a system send, and the parameters of its flows."""
    plan = PLANS[system](home)
    parameters = {entry: {"overrides": _laid_over(own["overrides"], sizes)} for entry, own in plan.parameters.items()}
    return replace(plan, parameters=parameters)


def _laid_over(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others laid over them, tables within tables."""
    merged = dict(values)
    for name, value in over.items():
        former = merged.get(name)
        if isinstance(former, Mapping) and isinstance(value, Mapping):
            value = _laid_over(former, value)
        merged[name] = value
    return merged


@contextmanager
def mlflow_server(home: Path, database: Postgres) -> Iterator[str]:
    """Run MLflow's server as deploy/compose.yaml does: its records in Postgres, and artifacts through it."""
    port = servers.free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", servers.HOST, "--port", str(port), "--workers", "1"]
    command += ["--serve-artifacts", "--artifacts-destination", str(home / "artifacts")]
    environment = {
        "MLFLOW_BACKEND_STORE_URI": database.address("mlflow", "psycopg"),  # not in the list of processes
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    url = f"http://{servers.HOST}:{port}"
    with servers.running("MLflow", command, environment, f"{url}/health", settings.read().home):
        yield url


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    content: Any


def ask(url: str, trusted: Certificate, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Send a request over TLS, and return the answer, whatever its status."""
    context = ssl.create_default_context(cafile=str(trusted.path))
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return Answer(answer.status, dict(answer.headers), _content(answer.read()))
    except urllib.error.HTTPError as error:
        return Answer(error.code, dict(error.headers), _content(error.read()))


def _content(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
