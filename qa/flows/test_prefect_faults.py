"""Prefect's own faults on a real server: it is gone for a while, a worker is gone, and the machine of a run is gone."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from pliant.flows import servers, settings
from qa.prefect_server import ENDED, POOL, await_run, logs, notices, prefect_of, python, until, worker
from tests.fixtures.runs import PATIENCE

SECONDS = {
    "PREFECT_WORKER_HEARTBEAT_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_FOREMAN_LOOP_SECONDS": "1",
    "PREFECT_SERVER_SERVICES_FOREMAN_INACTIVITY_HEARTBEAT_MULTIPLE": "10",
}
"""A worker is missed after 10 s, not after 90."""
AWAY = 15.0  # seconds without Prefect's server
INSTALL = """
from datetime import timedelta
from pliant.flows.watch.automations import install
install(3600.0, silent=timedelta(seconds={}))
"""


def test_a_run_outlasts_the_absence_of_prefects_server_and_the_next_one_comes(tmp_path: Path):
    marker = tmp_path / "marker"
    with prefect_of(tmp_path) as server:
        server.call("POST", "/work_pools/", {"name": POOL, "type": "process"})
        deployment = server.deploy("qa/flows/hanging.py:hanging", "hanging")
        with worker():
            first = server.start(deployment, how="file", marker=str(marker))
            until(lambda: Path(f"{marker}.begun").exists())
            port = int(server.url.rpartition(":")[2])
            (process,) = [each for each in psutil.Process().children() if str(port) in each.cmdline()]
            for each in [*process.children(recursive=True), process]:
                each.kill()
            process.wait(PATIENCE)
            time.sleep(AWAY / 2)
            marker.touch()  # the run ends while nobody listens
            time.sleep(AWAY / 2)
            with servers.prefect_server(settings.read(), port):
                (run,) = await_run(server, deployment, ENDED)
                assert (run["id"], run["state_type"]) == (first, "COMPLETED"), logs()
                second = server.start(deployment, how="", marker="")
                runs = {run["id"]: run for run in await_run(server, deployment, ENDED, 2)}
                assert runs[second]["state_type"] == "COMPLETED", logs()


def test_people_hear_of_a_worker_that_is_gone_and_a_run_whose_machine_is_gone_ends_as_crashed(tmp_path: Path):
    with prefect_of(tmp_path, **SECONDS) as server:
        python("-m", "pliant.flows.watch.automations")
        deployment = server.deploy("qa/flows/hanging.py:hanging", "hanging")
        python("-c", INSTALL.format(40))  # heartbeats come every 30 s at most often
        with worker() as process:
            run = server.start(deployment, how="file", marker=str(tmp_path / "never"))
            beat = {"event": {"name": ["prefect.flow-run.heartbeat"]}, "resource": {"id": [f"prefect.flow-run.{run}"]}}
            until(lambda: server.events(**beat))
            for each in [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]:
                each.kill()
            with worker("pliant-notify"):
                sentence = "The work pool pliant has no worker"
                until(lambda: [each for each in notices() if each["text"].startswith(sentence)])
            (crashed,) = await_run(server, deployment, ENDED)
        assert (crashed["id"], crashed["state_type"]) == (run, "CRASHED"), logs()
        assert "no heartbeat" in crashed["state"]["message"]
        with worker():  # it no longer holds the next one
            server.start(deployment, how="", marker="")
            (last,) = await_run(server, deployment, ["COMPLETED"])
        assert last["id"] != run
