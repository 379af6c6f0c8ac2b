"""Every query of every dashboard, asked of a Prometheus that scrapes the endpoints of all systems on the stack.

The flows run by their schedules, and their releases are served. Then happens what the dashboards draw: answers and labels,
refused requests, a tenant beyond its limit, a stream that its client leaves, another kind of requests than before, which the
watch raises an alarm over, and false labels, which break a promise of accuracy.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from rich.console import Console

from deploy.dashboards import DashboardQuery, queries
from pliant import systems
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from pliant.flows import settings
from qa.stack.changes import has_learnt
from qa.stack.dashboards_load import Clients, Endpoint, await_all, misbehave
from qa.stack.monitoring import Prometheus, prometheus
from qa.stack.stack import Sizes, stack
from qa.stack.whole import INTERVAL, TRAINED, new_key

SERVICE: Mapping[str, object] = {
    "watch_seconds": 1.0,
    "watch_burn_in": 100,
    "refresh_seconds": 2.0,
    "try_challengers": False,
}
"""What is usual is learnt from fewer answers than by default, so that it takes seconds."""
OF_SYSTEMS: Mapping[str, Mapping[str, object]] = {"cascade": {"agreement_share": 0.5}}
"""By default one early answer of a hundred is compared with the large model's."""
SIZES: Sizes = {
    "tokens": {"foundation": {"images": 1_000}},
    "bins": {"streams": [{"data": "docstrings:package", "limit": 1_000}]},
    "packing": {"embedded": {"epochs": 0.06}, "lengths": {"requests": 300}},
}
"""Smaller than the demo's: how good these models are does not matter here. The cascade keeps the demo's: with 1,500 texts,
on a busy machine, no early answer was compared with the large model's within three minutes."""
CHANGES: Mapping[str, int] = {"packing": 1}
"""Which of the planted changes is sent; else the last. Long questions are noticed however little was trained."""
CLIENTS = 3  # of each system
LEARNING = 300.0  # seconds within which all watches know what is usual
PATIENCE = 180.0  # seconds after the change, within which every query has data
NOT_HERE: Mapping[str, str] = {
    "pliant_fallbacks_total": "what a CPU of this kind does has no better way that fails",
    "pliant_out_of_memory_total": "on a CPU the operating system ends processes for memory, and nobody notices before",
    "pliant_predictor_failures_total": "no process was killed",
}
"""Events that are not made here, and why. Their queries are asked like all others; what they give is a zero."""


@dataclass(frozen=True, slots=True)
class Results:
    """Queries by what they gave: series with values; a zero, since the event never came; no data, or not of all systems."""

    with_series: list[DashboardQuery]
    with_zero: list[DashboardQuery]
    silent: list[DashboardQuery]


def dashboards(context: Context) -> Measured:
    """Ask for the queries of the overview and of all systems. Raises `PliantError`, `Skipped` without Prometheus."""
    home, names, begun = settings.read().home / "bench" / "dashboards", systems.names(), time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    keys = home / "keys.json"
    # A challenger waits and is not tried: another release would learn anew what is usual.
    canary = patch.dict(os.environ, {"PLIANT_ROLLOUT": "canary"})
    with canary, ExitStack() as running, context.stage("dashboards") as progress:
        client, monitor = new_key(keys, "use"), new_key(keys, "monitor")
        limited = new_key(keys, "use", "limited", rate=1.0)
        given = running.enter_context(stack(home, keys, names, sizes=SIZES))
        plans, trusted = given.plans, given.certificate.path
        scheduled = {system: given.schedule(system) for system in names}
        for number, system in enumerate(names, start=1):
            given.await_scheduled(system, scheduled[system], TRAINED)
            options = {**plans[system].service, **SERVICE, **OF_SYSTEMS.get(system, {})}
            options |= {"tls_cert": trusted, "tls_key": given.certificate.key}
            running.enter_context(given.endpoint(system, **options))
            progress(number, len(names) + 2)
        served = time.monotonic() - begun
        endpoints = {system: Endpoint(url, client, limited, trusted) for system, url in given.services.items()}
        targets = {system: url.removeprefix("https://") for system, url in given.services.items()}
        server = running.enter_context(prometheus(given.project, home / "prometheus", targets, monitor, trusted))
        with ExitStack() as sending:
            clients = {
                system: Clients(endpoint, plans[system].speech, plans[system].before.examples)
                for system, endpoint in endpoints.items()
            }
            for each in clients.values():
                sending.enter_context(each.running(CLIENTS))
            wrong = [f"{system}: {each}" for system in names for each in misbehave(endpoints[system], plans[system])]

            def learnt(system: str) -> bool:
                return has_learnt(endpoints[system].get(plans[system].status, monitor))

            await_all("what is usual", LEARNING, {system: partial(learnt, system) for system in clients})
            for system, each in clients.items():
                each.examples, each.falsely = plans[system].planted[CHANGES.get(system, -1)].mix.examples, True
            progress(len(names) + 1, len(names) + 2)
            results = _ask(server, names)
        progress(1, 1)
    wrong += [f"{system}: {each}" for system in names for each in clients[system].failures]
    return _measured(results, wrong, clients, served, time.monotonic() - begun)


def _ask(server: Prometheus, names: Sequence[str]) -> Results:
    """Ask for every query until it has data, and for a query of events until there was one; return what came of it."""
    wanted = [query for query in queries(INTERVAL) if query.dashboard in ("overview", *names)]
    results, until = Results([], [], []), time.monotonic() + PATIENCE
    while wanted:
        left = list[DashboardQuery]()
        for query in wanted:
            (results.with_series if has_series(server.query(query.expr), query, names) else left).append(query)
        wanted = left
        if time.monotonic() > until or all(is_not_here(query) for query in left):
            break
        time.sleep(1.0)
    for query in wanted:
        nothing_happened = query.expr.endswith("or vector(0)") and server.query(query.expr)
        (results.with_zero if nothing_happened else results.silent).append(query)
    return results


def has_series(result: Sequence[Mapping[str, Any]], query: DashboardQuery, names: Sequence[str]) -> bool:
    """Return whether a query gives numbers that come from a service; where it draws a line a system, from every one."""
    rows = [row for row in result if not math.isnan(float(row["value"][1]))]
    if query.expr.endswith("or vector(0)"):
        return any(row["metric"] for row in rows)  # that zero has no labels
    if query.dashboard == "overview":
        return {row["metric"].get("system") for row in rows} >= set(names)
    return bool(rows)


def is_not_here(query: DashboardQuery) -> bool:
    """Return whether a query is of events that are not made here alone."""
    names = re.findall(r"pliant_\w+", query.expr)
    return bool(names) and set(names) <= set(NOT_HERE)


def _measured(
    results: Results, wrong: Sequence[str], clients: Mapping[str, Clients], served: float, seconds: float
) -> Measured:
    console, missed = Console(), [query for query in results.with_zero if not is_not_here(query)]
    for sentence in wrong[:10]:
        console.print(sentence, markup=False)
    for query in results.silent:
        console.print(f"no data for {query.dashboard}, {query.panel}: {query.expr}", markup=False)
    for query in results.with_zero:
        why = next((why for name, why in NOT_HERE.items() if name in query.expr), "it did not come in time")
        console.print(f"0, as there was no event ({why}): {query.dashboard}, {query.panel}", markup=False)
    requests = {system: each.answered for system, each in clients.items()}
    count = len(results.with_series) + len(results.with_zero) + len(results.silent)
    console.print(f"{count} queries: {len(results.with_series)} with series, {len(results.with_zero)} with 0 alone")
    console.print(f"requests answered: {requests}; served after {served:.0f} s, all asked after {seconds:.0f} s")
    targets = [
        Target("queries of all dashboards without data", len(results.silent), "<=", 0, f"of {results.count}"),
        Target("queries of events that were made and not seen", len(missed), "<=", 0),
        Target(
            "requests that were not answered as they should be", len(wrong), "<=", 0, f"of {sum(requests.values())}"
        ),
    ]
    return targets, {
        "queries": results.count,
        "with_series": len(results.with_series),
        "with_zero": [f"{query.dashboard}, {query.panel}" for query in results.with_zero],
        "silent": [f"{query.dashboard}, {query.panel}" for query in results.silent],
        "wrong": list(wrong),
        "requests": requests,
        "served": served,
        "seconds": seconds,
    }
