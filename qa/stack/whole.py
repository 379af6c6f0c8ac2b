"""The test of the stack: from a schedule to a served version on Postgres, behind a key and TLS, and seen by Prometheus."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from pliant.benchmarks.harness import Context, Measured, Skipped
from pliant.benchmarks.results import Target
from pliant.errors import PliantError
from pliant.flows import settings
from pliant.serving.http.access.keys import Tenant
from qa.stack.monitoring import Prometheus, prometheus
from qa.stack.proxy import Proxy, proxy
from qa.stack.stack import SYSTEMS, Stack, stack
from qa.targets import bearer, exchange
from qa.targets import make_keys as keys_in

LIMIT = 300.0  # seconds, from nothing to the served version
TRAINED = 600.0  # seconds within which both flows have run
SCRAPED = 30.0  # seconds within which a query has data
REQUESTS = 20  # of each endpoint, before Prometheus is asked
INTERVAL = "10s"  # of rates in dashboards' queries, which are minutes for people
DEADLINE = 30.0  # seconds of a request
OK, NO_KEY, NOT_THERE = 200, 401, 404


def whole(context: Context) -> Measured:
    """Start the stack, have the flows run by their schedules, and ask the endpoints as clients do. Raises `PliantError`."""
    home, begun = settings.read().home / "bench" / "stack", time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    with ExitStack() as running, context.stage("the stack") as progress:
        steps = len(SYSTEMS) + 5
        client, monitor = new_key(home / "keys.json", "use"), new_key(home / "keys.json", "monitor")
        given = running.enter_context(stack(home, home / "keys.json"))
        progress(1, steps)
        scheduled = {system: given.schedule(system) for system in SYSTEMS}
        for number, system in enumerate(SYSTEMS, start=2):
            given.await_scheduled(system, scheduled[system], TRAINED)
            running.enter_context(given.endpoint(system))
            progress(number, steps)
        door = _door(running, given, home / "proxy")
        progress(steps - 3, steps)
        answers = {system: _ask(given, door, system, client) for system in SYSTEMS}
        served = time.monotonic() - begun
        wrong = [
            f"{system} answers with {status}: {content[:200]!r}"
            for system, (status, headers, content) in answers.items()
            if status != OK or "x-request-id" not in headers
        ]
        wrong += _wrong(given, door)
        progress(steps - 2, steps)
        silent, count = _unanswered(running, given, home / "prometheus", client, door, monitor)
        progress(steps, steps)
    for fault in [*wrong, *silent]:
        Console().print(fault, markup=False)
    targets = [
        Target("from nothing to two served versions that schedules made, on Postgres", served, "<=", LIMIT, "s"),
        Target("answers behind key and TLS that are not what they should be", len(wrong), "<=", 0),
    ]
    if count:
        targets.append(Target("queries of dashboards without data", len(silent), "<=", 0, f"of {count}"))
    return targets, {"seconds": served, "proxy": door is not None, "wrong": wrong, "silent": silent}


def new_key(path: Path, role: str, tenant: str = "stack", rate: float | None = None) -> str:
    """Add a key to the file, and return it. `rate`: requests a second that its tenant may send; None: no limit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return keys_in(path, {tenant: role}, {tenant: Tenant(rate=rate)})[tenant]


def _door(running: ExitStack, given: Stack, folder: Path) -> Proxy | None:
    """Start nginx; None where it is not installed, which the measurement then says."""
    upstreams = {system: address.removeprefix("http://") for system, address in given.services.items()}
    try:
        return running.enter_context(proxy(folder, upstreams, given.certificate))
    except Skipped as error:
        Console().print(f"without a proxy: {error}", markup=False)
        return None


def _ask(given: Stack, door: Proxy | None, system: str, key: str) -> tuple[int, Mapping[str, str], bytes]:
    """Return status, headers and content of the answer to a request with a key, or without."""
    speech, example = given.plans[system].speech, given.plans[system].before.examples[0]
    address = given.services[system] if door is None else f"{door.url}/{system}"
    body = json.dumps(speech.body(example, DEADLINE)).encode()
    return exchange(address, "POST", speech.path, body, bearer(key), 60.0, given.certificate.path)


def _wrong(given: Stack, door: Proxy | None) -> list[str]:
    """Return what a stranger gets that he should not: an answer without a key, and metrics through the proxy."""
    wrong = []
    for system in SYSTEMS:
        keyless, *_ = _ask(given, door, system, "")
        if keyless != NO_KEY:
            wrong.append(f"{system} answers a request without a key with {keyless}")
        if door is not None:
            metrics, *_ = exchange(f"{door.url}/{system}", "GET", "/metrics", trusted=given.certificate.path)
            if metrics != NOT_THERE:
                wrong.append(f"the proxy answers {system}'s /metrics with {metrics}")
    return wrong


def _unanswered(
    running: ExitStack, given: Stack, folder: Path, client: str, door: Proxy | None, monitor: str
) -> tuple[list[str], int]:
    """Return the queries of the dashboards that have no data though they should, and how many were asked."""
    from deploy.dashboards import queries

    targets = {system: address.removeprefix("http://") for system, address in given.services.items()}
    try:
        server: Prometheus = running.enter_context(prometheus(given.project, folder, targets, monitor))
    except Skipped as error:
        Console().print(f"without Prometheus: {error}", markup=False)
        return [], 0
    for system in SYSTEMS:
        if not server.await_data(f'up{{system="{system}"}} == 1', SCRAPED):
            raise PliantError(f"Prometheus cannot read the metrics of {system}")
    for _ in range(REQUESTS):
        for system in SYSTEMS:
            _ask(given, door, system, client)
    wanted = [query for query in queries(INTERVAL) if not query.after and query.dashboard in ("overview", *SYSTEMS)]
    silent = list[str]()
    for query in wanted:
        if not server.await_data(query.expr, SCRAPED if not silent else 3.0):
            silent.append(f"no data for {query.dashboard}, {query.panel}: {query.expr}")
    return silent, len(wanted)
