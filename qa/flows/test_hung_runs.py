"""A run that hangs is ended with its children, and the next run of its deployment runs: on a real server and worker."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import psutil
import pytest

from qa.prefect_server import ENDED, POOL, Server, await_run, logs, prefect_of, worker
from tests.fixtures.runs import PATIENCE

HOURS = 0.001  # 3.6 s, and 1 s of grace


@pytest.fixture
def server(tmp_path):
    with prefect_of(tmp_path, PLIANT_FLOW_HOURS=str(HOURS)) as server:
        server.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
        yield server


def test_runs_that_hang_are_ended_with_their_children_and_the_next_one_runs(server: Server, tmp_path: Path):
    deployment = server.deploy("qa/flows/hanging.py:hanging", "hanging")
    markers = {how: tmp_path / how for how in ("lock", "child")}
    with worker():
        locked = server.start(deployment, how="lock", marker=str(markers["lock"]))
        await_run(server, deployment, ["RUNNING"])
        waiting = server.start(deployment, how="child", marker=str(markers["child"]))
        await_run(server, deployment, ENDED)
        last = server.start(deployment, how="", marker="")
        runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 3)}
    for hung in (locked, waiting):
        assert (runs[hung]["state_name"], runs[hung]["state_type"]) == ("TimedOut", "FAILED"), logs()
    assert "The run hung: it was ended after 0.00128 h" in runs[locked]["state"]["message"]
    assert runs[last]["state_name"] == "Completed", runs[last]["state"]
    order = sorted(
        runs.values(), key=lambda run: run["start_time"]
    )  # Prefect does not promise first come, first served
    assert order[0]["id"] == locked
    for earlier, later in itertools.pairwise(order):  # never two beside each other
        assert earlier["end_time"] <= later["start_time"]
    children = [int(marker.read_text()) for marker in markers.values()]
    until = time.monotonic() + PATIENCE  # the guard reports the end, which frees the deployment, and then kills
    while any(map(psutil.pid_exists, children)):
        assert time.monotonic() < until, children
        time.sleep(0.1)
