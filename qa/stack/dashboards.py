"""Every query of every dashboard, asked of a Prometheus that scrapes the endpoints of all systems on the stack.

The flows run by their schedules, and their releases are served. Then happens what the dashboards draw: answers and labels,
refused requests, a tenant beyond its limit, a stream that its client leaves, another kind of requests than before, which the
watch raises an alarm over, and false labels, which break a promise of accuracy.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import httpx

from deploy.dashboards import DashboardQuery, queries
from pliant import systems
from pliant.benchmarks.demo.story_load import Speech
from pliant.benchmarks.harness import Context, Measured
from pliant.benchmarks.results import Target
from qa.clients import again_and_again
from qa.prefect_server import until
from qa.stack.changes import has_learnt
from qa.stack.plans import Plan
from qa.stack.servers import connect, program, prometheus
from qa.stack.stack import DEADLINE, OK, emptied, stack
from qa.targets import say

SERVICE: Mapping[str, object] = {
    "watch_seconds": 1.0,
    "watch_burn_in": 100,
    "refresh_seconds": 2.0,
    "try_challengers": False,
}
"""What is usual is learnt from fewer answers than by default, so that it takes seconds."""
OF_SYSTEMS: Mapping[str, Mapping[str, object]] = {"cascade": {"agreement_share": 0.5}}
"""By default one early answer of a hundred is compared with the large model's."""
SIZES: Mapping[str, Mapping[str, Any]] = {
    "tokens": {"foundation": {"images": 1_000}},
    "bins": {"streams": [{"data": "docstrings:package", "limit": 1_000}]},
    "packing": {"embedded": {"epochs": 0.06}, "lengths": {"requests": 300}},
}
"""Smaller than the demo's: how good these models are does not matter here. The cascade keeps the demo's: with 1,500 texts,
on a busy machine, no early answer was compared with the large model's within three minutes."""
CHANGES: Mapping[str, int] = {"packing": 1}
"""Which of the planted changes is sent; else the last. Long questions are noticed however little was trained."""
CLIENTS = 3  # of each system
PAUSE = 0.05  # seconds between two requests of a client
PERIOD, SILENCE = 10.0, 2.0  # seconds; each period begins without a request: some things happen in idle moments alone
BURST = 5  # requests at once of a tenant that may send one a second
INTERVAL = "10s"  # of rates in dashboards' queries, which are minutes for people
LEARNING = 300.0  # seconds within which all watches know what is usual
PATIENCE = 180.0  # seconds after the change, within which every query has data
NOT_HERE: Mapping[str, str] = {
    "pliant_fallbacks_total": "what a CPU of this kind does has no better way that fails",
    "pliant_out_of_memory_total": "on a CPU the operating system ends processes for memory, and nobody notices before",
    "pliant_predictor_failures_total": "no process was killed",
}
"""Events that are not made here, and why. Their queries are asked like all others; what they give is a zero."""


@dataclass(slots=True)
class Clients:
    """Clients of an endpoint, each of which sends the next example when the last was answered, and reports the label.

    `falsely`: labels are those of other examples, so that a promise of accuracy is broken.
    """

    http: httpx.Client
    speech: Speech
    examples: Sequence[Any]
    falsely: bool = False
    answered: int = 0
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def running(self, count: int = CLIENTS) -> Iterator[Clients]:
        """Run so many clients while the context lasts."""
        with ExitStack() as running:
            for number in range(count):
                running.enter_context(again_and_again(partial(self._send, itertools.count(number)), PAUSE))
            yield self

    def _send(self, numbers: Iterator[int]) -> None:
        """Send an example, and report its label, or, falsely, that of another."""
        if time.monotonic() % PERIOD < SILENCE:
            return
        examples, number = self.examples, next(numbers)
        example, other = examples[number * 7 % len(examples)], examples[(number * 7 + 1) % len(examples)]
        try:
            answer = self.http.post(self.speech.path, json=self.speech.body(example, DEADLINE)).raise_for_status()
            label = self.speech.label(answer.json(), other if self.falsely else example)
            self.answered += 1
            if label is not None:
                self.http.post("/v1/outcomes", json=label)
        except httpx.HTTPError as error:
            self.failures.append(f"{type(error).__name__}: {error}")


def misbehave(client: httpx.Client, limited: httpx.Client, plan: Plan) -> list[str]:
    """Send what is refused, and leave a stream where the interface has them; return what was not refused as it should be.

    `limited`: a client that may send one request a second.
    """
    path, body, wrong = plan.speech.path, plan.speech.body(plan.before.examples[0], DEADLINE), list[str]()
    empty = client.post(path, json={})
    if not empty.is_client_error:
        wrong.append(f"an empty request to {path} gets {empty.status_code}: {empty.text[:300]}")
    with ThreadPoolExecutor(BURST) as pool:
        statuses = list(pool.map(lambda _: limited.post(path, json=body).status_code, range(BURST)))
    if 429 not in statuses or OK not in statuses:
        wrong.append(f"{BURST} requests at once of a tenant that may send one a second get {statuses}")
    if path.endswith("/chat/completions"):
        with client.stream("POST", path, json={**body, "stream": True}) as answer:
            next(answer.iter_lines())
    return wrong


def dashboards(context: Context) -> Measured:
    """Ask for the queries of the overview and of all systems. Raises `PliantError`, `Skipped` without Prometheus."""
    program("prometheus")
    home, names, begun = emptied("dashboards"), systems.names(), time.monotonic()
    # A challenger waits and is not tried: another release would learn anew what is usual.
    canary = patch.dict(os.environ, {"PLIANT_ROLLOUT": "canary"})
    with canary, ExitStack() as running, context.stage("dashboards") as progress:
        given = running.enter_context(stack(home, names, SIZES))
        plans, trusted = given.plans, given.certificate.path
        client, monitor, limited = given.key("use"), given.key("monitor"), given.key("use", "limited", rate=1.0)
        for number, system in enumerate(given.scheduled(), start=1):
            options = {**plans[system].service, **SERVICE, **OF_SYSTEMS.get(system, {})}
            options |= {"tls_cert": trusted, "tls_key": given.certificate.key}
            running.enter_context(given.endpoint(system, **options))
            progress(number, len(names) + 2)
        served = time.monotonic() - begun
        server = running.enter_context(prometheus(home, given.targets, monitor, trusted))
        clients, wrong = dict[str, Clients](), list[str]()
        with ExitStack() as sending:
            for system, url in given.services.items():
                http = sending.enter_context(connect(url, client, trusted))
                each = Clients(http, plans[system].speech, plans[system].before.examples)
                clients[system] = sending.enter_context(each.running())
                with connect(url, limited, trusted) as other:
                    wrong += [f"{system}: {fault}" for fault in misbehave(http, other, plans[system])]
            for system, url in given.services.items():
                with connect(url, monitor, trusted) as http:
                    until(lambda of=http, at=plans[system].status: has_learnt(of.get(at).json()), LEARNING)
            for system, each in clients.items():
                each.examples, each.falsely = plans[system].planted[CHANGES.get(system, -1)].examples, True
            progress(len(names) + 1, len(names) + 2)
            # Ask for every query until it has data, and for a query of events until there was one.
            asked = [query for query in queries(INTERVAL) if query.dashboard in ("overview", *names)]
            without, last = asked, time.monotonic() + PATIENCE
            while not all(map(is_not_here, without)) and time.monotonic() < last:
                time.sleep(1.0)
                without = [query for query in without if not has_series(server.query(query.expr), query, names)]
            zero = [query for query in without if query.expr.endswith("or vector(0)") and server.query(query.expr)]
        progress(1, 1)
    wrong += [f"{system}: {each}" for system in names for each in clients[system].failures]
    silent, missed = [q for q in without if q not in zero], [q for q in zero if not is_not_here(q)]
    say(*wrong[:10], *(f"no data for {query.dashboard}, {query.panel}: {query.expr}" for query in silent))
    for query in zero:
        why = next((why for name, why in NOT_HERE.items() if name in query.expr), "it did not come in time")
        say(f"0, as there was no event ({why}): {query.dashboard}, {query.panel}")
    requests = {system: each.answered for system, each in clients.items()}
    of_all = f"of {sum(requests.values())}"
    targets = [
        Target("queries of all dashboards without data", len(silent), "<=", 0, f"of {len(asked)}"),
        Target("queries of events that were made and not seen", len(missed), "<=", 0),
        Target("requests that were not answered as they should be", len(wrong), "<=", 0, of_all),
    ]
    return targets, {
        "queries": len(asked),
        "with_series": len(asked) - len(without),
        "with_zero": [f"{query.dashboard}, {query.panel}" for query in zero],
        "silent": [f"{query.dashboard}, {query.panel}" for query in silent],
        "wrong": wrong,
        "requests": requests,
        "served": served,
        "seconds": time.monotonic() - begun,
    }


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
