"""BentoML still needs the patch, and the patch does what it says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import subprocess
import sys

from bentoml._internal.server.http.traffic import TimeoutMiddleware

from pliant.serving.bento.bentoml_patches import COUNTERS, _call_within_timeout
from tests.fixtures.fakes import run_virtually


async def answer_at_once(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def never_answer(scope, receive, send):
    await asyncio.sleep(60)


def call(app, timeout: float, within: float, run=_call_within_timeout):
    """Return the messages sent in virtual time, and the number of timers left on the loop."""

    async def main():
        sent = []

        async def send(message):
            sent.append(message)

        middleware = TimeoutMiddleware(app, timeout)
        await asyncio.wait_for(run(middleware, {"type": "http"}, None, send), within)
        timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]
        return sent, len(timers)

    return run_virtually(main())


def test_a_finished_request_leaves_no_timer():
    sent, timers = call(answer_at_once, timeout=60, within=30)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert timers == 0


def test_a_slow_request_gets_504_after_the_timeout():
    sent, _ = call(never_answer, timeout=0.05, within=30)
    assert sent[0]["status"] == 504


def test_a_stream_that_has_begun_is_not_cut():
    async def stream(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(20)
        await send({"type": "http.response.body", "body": b""})

    sent, timers = call(stream, timeout=10, within=30)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert timers == 0


def test_bentoml_as_shipped_still_leaves_its_timer():
    """If this fails, BentoML has fixed it: delete patch_timeouts and the other tests of it."""
    spec = importlib.util.find_spec(TimeoutMiddleware.__module__)
    shipped = importlib.util.module_from_spec(spec)  # a fresh copy: this process's own may be patched
    spec.loader.exec_module(shipped)
    _, timers = call(answer_at_once, timeout=60, within=30, run=shipped.TimeoutMiddleware.__call__)
    assert timers == 1


SERVICES = """
import json
import pliant.serving.bento.bentoml_patches as ours
from bentoml._internal.server.http.traffic import TimeoutMiddleware as theirs
from pliant.serving.bins.service import BinsService as bins, app as app_of_bins
from pliant.serving.tokens.service import TokensService as tokens, app as app_of_tokens

assert theirs.__call__ is ours._call_within_timeout
services = [(bins, app_of_bins), (tokens, app_of_tokens)]
print(json.dumps({
    service.name: {
        "traffic": service.config["traffic"],
        "app": [[path, mounted is app] for mounted, path, _ in service.mount_apps],
        "middleware": [[kind.__name__, options.get("state") is app.state] for kind, options in service.middlewares],
    }
    for service, app in services
}))
"""


def test_importing_a_service_puts_the_patch_in_and_hosts_its_app_behind_its_door():
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PLIANT_")}
    environment["PLIANT_TRACE_SHARE"] = "0.5"
    command = [sys.executable, "-c", SERVICES]
    run = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True, env=environment)
    behind = [[f"{name}Middleware", True] for name in ("Access", "Tracing", "UnknownPath")]
    middleware = [["RequestIdMiddleware", False], *behind]  # nothing is traced that may not pass
    guarded = {"traffic": {"timeout": 300}, "middleware": middleware}
    assert json.loads(run.stdout.splitlines()[-1]) == {
        "pliant_bins": {**guarded, "app": [["/", True], ["/", False]]},
        "pliant_tokens": {**guarded, "app": [["/v1", True], ["/", False], ["/", False]]},
    }


COUNTING = """
import os, prometheus_client
from pliant.serving.bins.service import BinsService
from bentoml._internal.configuration.containers import BentoMLContainer
counter = prometheus_client.Counter("asked", "Requests", ("tenant",))
for number in range(1000):
    counter.labels(f"tenant {number}").inc()
shown = BentoMLContainer.metrics_client.get().generate_latest().decode().splitlines()
assert 'asked_total{tenant="tenant 999"} 1.0' in shown
assert all(line.startswith(("#", "asked_total")) for line in shown), shown
"""


def test_counters_map_no_files_though_bentoml_says_where_they_should_be(tmp_path):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PLIANT_")}
    subprocess.run(
        [sys.executable, "-c", COUNTING], check=True, timeout=600, env={**environment, COUNTERS: str(tmp_path)}
    )
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_asked_for_leaves_no_metric_behind():
    """BentoML's own middleware counts by path, which strangers choose: in a process of its own, as it patches a class."""
    code = """
import asyncio
from bentoml._internal.server.http.instruments import RunnerTrafficMetricsMiddleware
from pliant.serving.bento.bentoml_patches import leave_out_path_metrics

async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 404, "headers": []})

async def send(message):
    print(message["status"])

leave_out_path_metrics()
middleware = RunnerTrafficMetricsMiddleware(answer)
asyncio.run(middleware({"type": "http", "path": "/nowhere/1", "method": "GET"}, None, send))
print(middleware._is_setup)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["404", "False"]  # its series are made when it is set up, at the first request
