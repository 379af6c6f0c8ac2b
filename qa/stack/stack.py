"""All servers of the stack, started one after the other, and what clients and operators see of them.

`whole` tests it: from a schedule to a served version on Postgres, behind a key and TLS, and seen by Prometheus.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pliant.benchmarks.endpoint import serving
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import servers, settings
from pliant.flows.settings import Settings
from pliant.serving.http.access.keys import Tenant
from qa.prefect_server import ENDED, Server, night, until
from qa.stack.plans import PLANS, Plan
from qa.stack.servers import Postgres, connect, mlflow_server, postgres, program, prometheus, proxy
from qa.targets import make_keys, say
from tests.fixtures.certificate import Certificate, certificate

SYSTEMS = ("tokens", "bins")
"""Of which there is an endpoint by default; two are enough to show that one proxy and one Prometheus serve several."""
SOON = 3.0  # seconds until a schedule begins
TRAINED = 600.0  # seconds within which a system's flow has run
LIMIT = 300.0  # seconds, from nothing to the served version
SCRAPED = 30.0  # seconds within which Prometheus has read a service
DEADLINE = 30.0  # seconds of a request, so that none is refused because the machine is slow
OK, NO_KEY, NOT_THERE = 200, 401, 404
LOOPS = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "1",  # 60 by default, until a new schedule has runs
    "PREFECT_SERVER_SERVICES_SCHEDULER_DEPLOYMENT_BATCH_SIZE": "100",
}


@dataclass(slots=True)
class Stack:
    """Servers that run. `services`: system -> address of its endpoint."""

    project: Settings
    database: Postgres
    prefect: Server
    certificate: Certificate
    plans: Mapping[str, Plan]
    services: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> Path:
        return self.project.home / "keys.json"

    @property
    def targets(self) -> dict[str, str]:
        """System -> host:port of its endpoint."""
        return {system: address.partition("://")[2] for system, address in self.services.items()}

    def key(self, role: str, tenant: str = "stack", rate: float | None = None) -> str:
        """Make a key. `rate`: requests a second that its tenant may send; None: no limit."""
        return make_keys(self.keys, {tenant: role}, {tenant: Tenant(rate=rate)})[tenant]

    def schedule(self, system: str, wait: float = SOON) -> float:
        """Give a system's nightly deployment a schedule that begins after so many seconds; return that moment, in seconds
        since 1970."""
        identity, begin = self.prefect.deployment(f"{system}/{system}-nightly"), time.time() + wait
        schedule = {
            "interval": 3600.0,
            "anchor_date": datetime.fromtimestamp(begin, UTC).isoformat(),
            "timezone": "UTC",
        }
        self.prefect.call("POST", f"/deployments/{identity}/schedules", [{"schedule": schedule, "active": True}])
        return begin

    def scheduled(self) -> Iterator[str]:
        """Give each system a schedule that begins soon, and yield it when that run has ended well. Raises `PliantError`."""
        begins = {system: self.schedule(system) for system in self.plans}
        for system, begin in begins.items():
            (run, *_) = until(
                lambda of=system: [r for r in self.prefect.flow_runs() if r.flow == of and r.state in ENDED], TRAINED
            )
            if run.state != "COMPLETED" or run.begun < begin - 1:
                raise PliantError(f"the scheduled run of {system} ended as {run.word}: {run.message}")
            yield system

    @contextmanager
    def endpoint(self, system: str, **options: object) -> Iterator[str]:
        """Run a system's endpoint, which serves what the registry says, and asks for keys. `options`: of its settings."""
        with serving(system, 0, self.project, keys_file=self.keys, trusted_proxies=servers.HOST, **options) as url:
            self.services[system] = url
            yield url
            del self.services[system]


@contextmanager
def stack(
    home: Path,
    names: Sequence[str] = SYSTEMS,
    sizes: Mapping[str, Mapping[str, Any]] = {},
    databases: Callable[[Postgres], object] = lambda _database: None,
    runs: Callable[[], object] | None = None,
) -> Iterator[Stack]:
    """Run Postgres, MLflow, Prefect and a worker, with the flows of systems deployed in the sizes of planted changes.

    `sizes`: system -> what is laid over the parameters of its flows. What is restored: `databases` is called when Postgres
    alone is up, and `runs`, in place of a deployment, when all is but the worker.
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
        databases(database)
        address = database.address("mlflow", "psycopg")
        os.environ["MLFLOW_TRACKING_URI"] = running.enter_context(mlflow_server(home, address, home))
        project = settings.prepare()
        plans = {system: PLANS[system](home) for system in names}
        parameters = {
            entry: {"overrides": laid_over(own["overrides"], sizes.get(system, {}))}
            for system, plan in plans.items()
            for entry, own in plan.parameters.items()
        }
        prefect = running.enter_context(night(project, parameters, runs))
        yield Stack(project, database, prefect, certificate(home / "tls"), plans)


def laid_over(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with others laid over them, tables within tables."""
    return {
        **values,
        **{
            name: laid_over(values[name], value) if isinstance(values.get(name), Mapping) else value
            for name, value in over.items()
        },
    }


def emptied(name: str) -> Path:
    """Return the folder of a part, without what a former run has left there."""
    home = settings.read().home / "bench" / name
    shutil.rmtree(home, ignore_errors=True)
    return home


def whole(context: Context) -> Measured:
    """Start the stack, have the flows run by their schedules, and ask the endpoints as clients do. Raises `PliantError`."""
    for name in ("nginx", "prometheus"):
        program(name)
    home, begun = emptied("stack"), time.monotonic()
    with ExitStack() as running, context.stage("the stack") as progress:
        given = running.enter_context(stack(home))
        client, monitor, trusted = given.key("use"), given.key("monitor"), given.certificate.path
        for number, system in enumerate(given.scheduled(), start=1):
            running.enter_context(given.endpoint(system))
            progress(number, len(SYSTEMS) + 2)
        door = running.enter_context(proxy(home / "proxy", given.targets, given.certificate))
        wrong = list[str]()
        for system, plan in given.plans.items():
            path, body = plan.speech.path, plan.speech.body(plan.before.examples[0], DEADLINE)
            with connect(f"{door.url}/{system}", client, trusted) as http:
                answer = http.post(path, json=body)
            served = time.monotonic() - begun
            with connect(f"{door.url}/{system}", trusted=trusted) as http:  # what a stranger gets
                keyless, metrics = http.post(path, json=body), http.get("/metrics")
            for got, right in ((answer, OK), (keyless, NO_KEY), (metrics, NOT_THERE)):
                if got.status_code != right:
                    wrong.append(f"{got.url} is answered with {got.status_code}, not {right}: {got.text[:200]}")
            if "x-request-id" not in answer.headers:
                wrong.append(f"{answer.url} is answered without an id")
        progress(len(SYSTEMS) + 1, len(SYSTEMS) + 2)
        server = running.enter_context(prometheus(home, given.targets, monitor))
        for system in SYSTEMS:
            until(lambda of=system: server.query(f'up{{system="{of}"}} == 1'), SCRAPED)
        progress(1, 1)
    say(*wrong)
    targets = [
        Target("from nothing to two served versions that schedules made, on Postgres", served, "<=", LIMIT, "s"),
        Target("answers behind key and TLS that are not what they should be", len(wrong), "<=", 0),
    ]
    return targets, {"seconds": served, "wrong": wrong}
