"""All servers of the stack, started one after the other, and what clients and operators see of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pliant.benchmarks.endpoint import serving
from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.flows.settings import Settings
from qa.prefect_server import ENDED, Server, night, until
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
    prefect: Server
    certificate: Certificate
    keys: Path
    plans: Mapping[str, Plan]
    services: dict[str, str] = field(default_factory=dict)

    def schedule(self, system: str, wait: float = SOON) -> float:
        """Give a system's nightly deployment a schedule that begins after so many seconds; return that moment, in seconds
        since 1970."""
        identity = self.prefect.deployment(f"{system}/nightly")
        begin = time.time() + wait
        anchor = datetime.fromtimestamp(begin, UTC).isoformat()
        schedule = {"interval": HOUR, "anchor_date": anchor, "timezone": "UTC"}
        self.prefect.call("POST", f"/deployments/{identity}/schedules", [{"schedule": schedule, "active": True}])
        return begin

    def await_scheduled(self, system: str, begin: float, seconds: float) -> None:
        """Return when the run that the schedule began has ended well. Raises `PliantError`."""
        (run, *_) = until(
            lambda: [run for run in self.prefect.flow_runs() if run.flow == system and run.state in ENDED], seconds
        )
        if run.state != "COMPLETED":
            raise PliantError(f"the run of {system} ended as {run.word}: {run.message}")
        if run.begun < begin - 1:
            raise PliantError(f"a run of {system} began before its schedule")

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
        own = {
            "PLIANT_HOME": str(home),
            "PREFECT_HOME": str(home / "prefect"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.address("prefect", "asyncpg"),
        }
        running.enter_context(patch.dict(os.environ, own | LOOPS))
        if restoration is not None:
            restoration.databases(database)
        address = database.address("mlflow", "psycopg")
        mlflow = running.enter_context(mlflow_server(home, address, settings.read().home))
        os.environ["MLFLOW_TRACKING_URI"] = mlflow
        project = settings.read()
        settings.prepare(project)
        plans = {system: PLANS[system](home) for system in names}
        parameters = {
            entry: {"overrides": _laid_over(own["overrides"], sizes.get(system, {}))}
            for system, plan in plans.items()
            for entry, own in plan.parameters.items()
        }
        prefect = running.enter_context(night(project, parameters, restoration.runs if restoration else None))
        yield Stack(project, database, mlflow, prefect, certificate(home / "tls"), keys, plans)


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
def mlflow_server(home: Path, records: str, state: Path) -> Iterator[str]:
    """Run MLflow's server as deploy/compose.yaml does: artifacts through it. `records`: address of its database."""
    port = servers.free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--host", servers.HOST, "--port", str(port), "--workers", "1"]
    command += ["--serve-artifacts", "--artifacts-destination", str(home / "artifacts")]
    # The address is not in the list of processes.
    environment = {"MLFLOW_BACKEND_STORE_URI": records, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    url = f"http://{servers.HOST}:{port}"
    with servers.running("MLflow", command, environment, f"{url}/health", state):
        yield url
